package meta

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
)

type cluster struct {
	id     string
	inc    uint32
	modRev int64
}

// findCluster resolves "", makes the cluster's record if there is none, and raises its incarnation if asked to.
// Each write is guarded, so several brokers may start a cluster at once: all but one find what that one made.
func findCluster(ctx context.Context, kv KV, id string, o Options) (cluster, error) {
	for range 16 {
		use := id
		if use == "" {
			var err error
			if use, err = onlyCluster(ctx, kv); err != nil {
				return cluster{}, err
			}
		}
		var guards []Guard
		var ops []Op
		if use == "" {
			random, err := randomID(o.Rand)
			if err != nil {
				return cluster{}, err
			}
			use = random
			guards = append(guards, Guard{Key: defaultKey})
			ops = append(ops, Op{Key: defaultKey, Value: encode(defaultRecord{V: recordMajor, ID: use})})
		}
		if err := checkName("cluster id", use); err != nil {
			return cluster{}, err
		}
		c, r, err := getCluster(ctx, kv, use)
		if err != nil {
			return cluster{}, err
		}
		switch {
		case o.Incarnation != 0 && r.Incarnation > o.Incarnation:
			return cluster{}, fmt.Errorf("cluster %s has incarnation %d, not %d: %w", use, r.Incarnation, o.Incarnation, ErrIncarnation)
		case c.modRev != 0 && r.Incarnation >= o.Incarnation:
			return c, nil
		case c.modRev == 0:
			r.CreatedMs = o.Wall.Ms()
		}
		r.V, r.Incarnation = recordMajor, max(1, o.Incarnation)
		key := clusterPrefix + use
		// Refused, or its outcome unknown: what is there now decides.
		_, _, err = kv.Txn(ctx, append(guards, Guard{Key: key, ModRev: c.modRev}), append(ops, Op{Key: key, Value: encode(r)}))
		if err != nil && !isUnknown(ctx, err) {
			return cluster{}, err
		}
	}
	return cluster{}, fmt.Errorf("make cluster %q: %w", id, ErrConflict)
}

func getCluster(ctx context.Context, kv KV, id string) (cluster, clusterRecord, error) {
	var r clusterRecord
	p, ok, err := kv.Get(ctx, clusterPrefix+id)
	if err != nil || !ok {
		return cluster{}, r, err
	}
	if err := decode(p.Key, p.Value, &r, &r.V); err != nil {
		return cluster{}, r, err
	}
	if r.Incarnation == 0 {
		return cluster{}, r, bad(p.Key, "incarnation 0")
	}
	return cluster{id: id, inc: r.Incarnation, modRev: p.ModRev}, r, nil
}

// onlyCluster is the default cluster, or the only one, or "".
func onlyCluster(ctx context.Context, kv KV) (string, error) {
	p, ok, err := kv.Get(ctx, defaultKey)
	if err != nil {
		return "", err
	}
	if ok {
		var r defaultRecord
		if err := decode(p.Key, p.Value, &r, &r.V); err != nil {
			return "", err
		}
		return r.ID, nil
	}
	pairs, _, err := kv.Range(ctx, clusterPrefix)
	if err != nil || len(pairs) == 0 {
		return "", err
	}
	ids := make([]string, len(pairs))
	for i, p := range pairs {
		ids[i] = strings.TrimPrefix(p.Key, clusterPrefix)
	}
	if len(ids) > 1 {
		return "", fmt.Errorf("%w: several clusters, name one of %s", ErrInvalid, strings.Join(ids, ", "))
	}
	return ids[0], nil
}

// randomID is an id in Kafka's text form; it never begins with '-', which command lines would take for a flag.
func randomID(r io.Reader) (string, error) {
	for {
		var b [16]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return "", fmt.Errorf("make random id: %w", err)
		}
		if s := base64.RawURLEncoding.EncodeToString(b[:]); s[0] != '-' {
			return s, nil
		}
	}
}
