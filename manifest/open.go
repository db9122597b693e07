package manifest

import (
	"errors"
	"fmt"
)

var errWrongObject = errors.New("object is not what its key says")

// OpenManifest decodes a manifest and checks that it is the one that belongs under the key. Errors name the object.
func OpenManifest(key string, b []byte) (*Manifest, error) {
	m, err := DecodeManifest(b)
	if err != nil {
		return nil, InObject(err, key, 0)
	}
	if m.Key() != key {
		return nil, &CorruptError{Object: key, Err: fmt.Errorf("manifest of %s: %w", m.Key(), errWrongObject)}
	}
	return m, nil
}

// OpenFooter decodes the footer of the segment object under the key from its last bytes. If they are too few it asks for
// more: need is how many of the object's last bytes hold the footer, and f is nil. What the key says of the records is
// checked where the key is one that SegmentKey makes. Errors name the object.
func OpenFooter(key string, size int64, tail []byte) (f *Footer, need int64, err error) {
	pos, n, err := ParseTrailer(tail, size)
	if err != nil {
		return nil, 0, InObject(err, key, 0)
	}
	if need = n + TrailerLen; need > int64(len(tail)) {
		return nil, need, nil
	}
	at := int64(len(tail)) - need
	f, err = DecodeFooter(tail[at : at+n])
	if err != nil {
		return nil, 0, InObject(err, key, pos)
	}
	if f.DataBytes != pos {
		return nil, 0, &CorruptError{Object: key, Offset: pos, Err: fmt.Errorf("footer of %d bytes of data after %d", f.DataBytes, pos)}
	}
	name, ok := ParseSegmentKey(key)
	if ok && (name.Partition != f.Partition || name.Base != f.Base || name.Last != f.End-1 || name.LeaderEpoch != f.LeaderEpoch) {
		return nil, 0, &CorruptError{Object: key, Offset: pos, Err: fmt.Errorf("records [%d, %d) of %v, epoch %d: %w", f.Base, f.End, f.Partition, f.LeaderEpoch, errWrongObject)}
	}
	return f, 0, nil
}
