package manifest

import (
	"fmt"
	"time"
)

// ArchiveInfo is archive.json.
type ArchiveInfo struct {
	Format  int    `json:"format"`
	ID      string `json:"archive_id"`
	Cluster string `json:"cluster_id"`
	Created string `json:"created"` // RFC 3339
}

// Encode makes the body of archive.json. Format 0 is taken as the current one.
func (a ArchiveInfo) Encode() ([]byte, error) {
	if a.Format == 0 {
		a.Format = documentVersion
	}
	if err := a.check(); err != nil {
		return nil, fmt.Errorf("encode %s: %w", ArchiveKey, err)
	}
	return encodeDocument(a)
}

// DecodeArchiveInfo is the inverse of Encode.
func DecodeArchiveInfo(b []byte) (ArchiveInfo, error) {
	var a ArchiveInfo
	if err := decodeDocument(b, &a); err != nil {
		return ArchiveInfo{}, err
	}
	if err := a.check(); err != nil {
		return ArchiveInfo{}, corruptf(0, "%w", err)
	}
	return a, nil
}

func (a ArchiveInfo) check() error {
	if a.Format != documentVersion || !plainName(a.ID) || a.Cluster == "" {
		return fmt.Errorf("archive %q of cluster %q, format %d", a.ID, a.Cluster, a.Format)
	}
	if _, err := time.Parse(time.RFC3339, a.Created); err != nil {
		return fmt.Errorf("archive %q: created: %w", a.ID, err)
	}
	return checkText("cluster", a.Cluster)
}

// Claim is `inc/<n>.claim`: somebody means to be incarnation n (PROTOCOLS 2.2). ID is random, so that a claim without an
// answer can be told from another's.
type Claim struct {
	Incarnation uint32
	ID          string
	Cluster     string
	Time        int64 // ms, the claimer's clock; for people only
}

// Seal is `inc/<n>.seal`: the incarnation of the claim with the same ID is whole, all of its base manifests are written.
type Seal struct {
	Incarnation uint32
	ID          string
	Cluster     string
	From        uint32 // the incarnation that it was made from, 0 for a new archive
	Time        int64  // ms, the claimer's clock; for people only
}

type incarnationDocument struct {
	Format      int    `json:"format"`
	Kind        string `json:"kind"`
	Incarnation uint32 `json:"incarnation"`
	ID          string `json:"id"`
	Cluster     string `json:"cluster_id"`
	From        uint32 `json:"from"`
	TimeMs      int64  `json:"time_ms"`
}

// Encode makes the body of the claim's object.
func (c Claim) Encode() ([]byte, error) {
	return incarnationDocument{documentVersion, "claim", c.Incarnation, c.ID, c.Cluster, 0, c.Time}.encode()
}

// DecodeClaim is the inverse of Encode.
func DecodeClaim(b []byte) (Claim, error) {
	d, err := decodeIncarnation(b, "claim")
	return Claim{d.Incarnation, d.ID, d.Cluster, d.TimeMs}, err
}

// Encode makes the body of the seal's object.
func (s Seal) Encode() ([]byte, error) {
	return incarnationDocument{documentVersion, "seal", s.Incarnation, s.ID, s.Cluster, s.From, s.Time}.encode()
}

// DecodeSeal is the inverse of Encode.
func DecodeSeal(b []byte) (Seal, error) {
	d, err := decodeIncarnation(b, "seal")
	return Seal{d.Incarnation, d.ID, d.Cluster, d.From, d.TimeMs}, err
}

func (d incarnationDocument) encode() ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("encode %s: %w", d.Kind, err)
	}
	return encodeDocument(d)
}

func decodeIncarnation(b []byte, kind string) (incarnationDocument, error) {
	var d incarnationDocument
	if err := decodeDocument(b, &d); err != nil {
		return incarnationDocument{}, err
	}
	if d.Kind != kind {
		return incarnationDocument{}, corruptf(0, "document of kind %q, want a %s", d.Kind, kind)
	}
	if err := d.check(); err != nil {
		return incarnationDocument{}, corruptf(0, "%w", err)
	}
	return d, nil
}

func (d incarnationDocument) check() error {
	if d.Incarnation == 0 || d.ID == "" || d.From >= d.Incarnation || d.Kind == "claim" && d.From != 0 {
		return fmt.Errorf("incarnation %d from %d, id %q", d.Incarnation, d.From, d.ID)
	}
	return checkText("id", d.ID, d.Cluster)
}

// Lease is `lease/<id>`: a cluster that reads this archive without owning it. It expires TTLMs after the object's
// Last-Modified (PROTOCOLS 2.5).
type Lease struct {
	ID      string `json:"id"`
	Cluster string `json:"cluster_id"`
	TTLMs   int64  `json:"ttl_ms"`
	Renewal int64  `json:"renewal"` // counts up, so that a renewal differs from the one before
}

type leaseDocument struct {
	Format int    `json:"format"`
	Kind   string `json:"kind"`
	Lease
}

// Encode makes the body of the lease's object.
func (l Lease) Encode() ([]byte, error) {
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("encode lease: %w", err)
	}
	return encodeDocument(leaseDocument{documentVersion, "lease", l})
}

// DecodeLease is the inverse of Encode.
func DecodeLease(b []byte) (Lease, error) {
	var d leaseDocument
	if err := decodeDocument(b, &d); err != nil {
		return Lease{}, err
	}
	if d.Kind != "lease" {
		return Lease{}, corruptf(0, "document of kind %q, want a lease", d.Kind)
	}
	if err := d.check(); err != nil {
		return Lease{}, corruptf(0, "%w", err)
	}
	return d.Lease, nil
}

func (l Lease) check() error {
	if !plainName(l.ID) || l.TTLMs <= 0 || l.Renewal < 0 {
		return fmt.Errorf("lease %q of %d ms, renewal %d", l.ID, l.TTLMs, l.Renewal)
	}
	return checkText("cluster", l.Cluster)
}
