package objstore

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrKey is returned for a key that not every store can hold.
var ErrKey = errors.New("invalid object key")

const maxKeyBytes = 1024 // S3's limit, of the key with its prefix

// CheckKey refuses a key that some store would refuse, mangle or take for another one: empty, longer than 1024 bytes,
// not UTF-8, with control characters or a backslash, with an empty, "." or ".." segment.
func CheckKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: empty", ErrKey)
	}
	if err := CheckPrefix(key); err != nil {
		return err
	}
	if strings.HasSuffix(key, "/") {
		return fmt.Errorf("%w %q: ends with a slash", ErrKey, key)
	}
	for seg := range strings.SplitSeq(key, "/") {
		if seg == "." || seg == ".." || len(seg) > 255 {
			return fmt.Errorf("%w %q: segment %q", ErrKey, key, seg)
		}
	}
	return nil
}

// CheckPrefix refuses what cannot be the beginning of a key. The empty prefix is allowed.
func CheckPrefix(prefix string) error {
	if len(prefix) > maxKeyBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrKey, len(prefix), maxKeyBytes)
	}
	if !utf8.ValidString(prefix) {
		return fmt.Errorf("%w %q: not UTF-8", ErrKey, prefix)
	}
	if strings.HasPrefix(prefix, "/") || strings.Contains(prefix, "//") ||
		strings.HasPrefix(prefix, "../") || strings.Contains(prefix, "/../") {
		return fmt.Errorf("%w %q: empty or parent segment", ErrKey, prefix)
	}
	for _, c := range prefix {
		if c < 0x20 || c == 0x7f || c == '\\' {
			return fmt.Errorf("%w %q: character %q", ErrKey, prefix, c)
		}
	}
	return nil
}
