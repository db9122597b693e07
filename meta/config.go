package meta

import (
	"context"
	"fmt"
	"maps"
)

// AlterConfigs is AlterTopic for "broker/<id>", "broker/", "group/<id>". An empty result removes the record.
func (s *Store) AlterConfigs(ctx context.Context, resource string, edit func(map[string]string) (map[string]string, error)) error {
	if resource == "" {
		return fmt.Errorf("alter configs: %w: no resource", ErrInvalid)
	}
	key := s.keys.config(resource)
	for range editMax {
		kv, ok, err := s.kv.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("alter configs of %s: %w", resource, err)
		}
		var r configRecord
		if ok {
			if err := decode(key, kv.Value, &r, &r.V); err != nil {
				return fmt.Errorf("alter configs of %s: %w", resource, err)
			}
		}
		next, err := edit(cloneConfigs(r.Configs))
		if err != nil {
			return err
		}
		if maps.Equal(next, r.Configs) {
			return nil
		}
		op := Op{Key: key, Delete: true}
		if len(next) > 0 {
			op = Op{Key: key, Value: encode(configRecord{V: recordMajor, Configs: next})}
		}
		ok, rev, err := s.commit(ctx, []Guard{{Key: key, ModRev: kv.ModRev}}, []Op{op})
		if err != nil {
			return fmt.Errorf("alter configs of %s: %w", resource, err)
		}
		if ok {
			s.settle(ctx, rev)
			return nil
		}
	}
	return fmt.Errorf("alter configs of %s: %w", resource, ErrConflict)
}

// Attach records that this cluster reads another one's archive under a lease, in place of what was recorded for it.
func (s *Store) Attach(ctx context.Context, a Attached) error {
	if a.Archive == "" {
		return fmt.Errorf("attach archive: %w: no id", ErrInvalid)
	}
	r := attachedRecord{V: recordMajor, URL: a.URL, LeaseID: a.LeaseID, TTLMs: a.TTLMs}
	return s.replace(ctx, "attach archive "+a.Archive, Op{Key: s.keys.attached(a.Archive), Value: encode(r)})
}

// Detach forgets an attached archive; one that is not there is no error.
func (s *Store) Detach(ctx context.Context, archive string) error {
	return s.replace(ctx, "detach archive "+archive, Op{Key: s.keys.attached(archive), Delete: true})
}

// replace does one op whatever was there.
func (s *Store) replace(ctx context.Context, what string, op Op) error {
	ok, rev, err := s.commit(ctx, nil, []Op{op})
	if err == nil && !ok {
		err = ErrConflict
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s.settle(ctx, rev)
	return nil
}

// ClusterResource is the resource of AlterConfigs and Image.Configs whose configs hold for all brokers.
const ClusterResource = "broker/"

// BrokerResource is the resource of one broker's configs.
func BrokerResource(id int32) string { return fmt.Sprintf("%s%d", ClusterResource, id) }
