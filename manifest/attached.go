package manifest

import (
	"fmt"
	"strings"
)

// Attached is `c/<cluster id>/attached/<archive id>`: where the objects are that manifests of this archive refer to in
// another one. With it the bucket alone is enough to restore a cluster that was itself restored.
type Attached struct {
	Cluster string // that refers
	Archive string // id of the other archive
	URL     string // without credentials
}

type attachedDocument struct {
	Format  int    `json:"format"`
	Kind    string `json:"kind"`
	Cluster string `json:"cluster_id"`
	Archive string `json:"archive_id"`
	URL     string `json:"url"`
}

// AttachedPrefix begins the records of the archives that a cluster refers to.
func AttachedPrefix(cluster string) string { return ClusterPrefix(cluster) + "attached/" }

// AttachedKey names the record of one. The archive's id has letters, digits, '-' and '_' only.
func AttachedKey(cluster, archive string) string { return AttachedPrefix(cluster) + archive }

// ParseAttachedKey returns the archive's id of a key below AttachedPrefix of the cluster.
func ParseAttachedKey(cluster, key string) (archive string, ok bool) {
	archive, ok = strings.CutPrefix(key, AttachedPrefix(cluster))
	return archive, ok && plainName(archive)
}

// Key is where the record is stored.
func (a Attached) Key() string { return AttachedKey(a.Cluster, a.Archive) }

// Encode makes the body of the record's object.
func (a Attached) Encode() ([]byte, error) {
	if err := a.check(); err != nil {
		return nil, fmt.Errorf("encode attached archive: %w", err)
	}
	return encodeDocument(attachedDocument{documentVersion, "attached", a.Cluster, a.Archive, a.URL})
}

// DecodeAttached is the inverse of Encode.
func DecodeAttached(b []byte) (Attached, error) {
	var d attachedDocument
	if err := decodeDocument(b, &d); err != nil {
		return Attached{}, err
	}
	if d.Kind != "attached" {
		return Attached{}, corruptf(0, "document of kind %q, want an attached archive", d.Kind)
	}
	a := Attached{d.Cluster, d.Archive, d.URL}
	if err := a.check(); err != nil {
		return Attached{}, corruptf(0, "%w", err)
	}
	return a, nil
}

func (a Attached) check() error {
	if a.Cluster == "" || !plainName(a.Archive) || a.URL == "" {
		return fmt.Errorf("archive %q at %q, attached to cluster %q", a.Archive, a.URL, a.Cluster)
	}
	return checkText("cluster or URL", a.Cluster, a.URL)
}
