// Package objstore is the object store in five methods, its errors normalised once.
//
// It does not know what is stored. tier, cache and recovery call it through Bucket; s3, minio, file, mem and fault
// implement it and objtest holds them all to one conformance suite. Retry, metrics and budgets are decorators.
package objstore

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"
)

// Errors that callers branch on. Implementations wrap them; anything else is not retryable.
var (
	ErrNotFound     = errors.New("object not found")
	ErrExists       = errors.New("object exists")                 // a conditional create was lost
	ErrPrecondition = errors.New("object changed")                // If-Match did not hold
	ErrThrottled    = errors.New("object store throttles")        // 429, 503 SlowDown: retry with back-off
	ErrUnavailable  = errors.New("object store unavailable")      // 5xx, connection, time-out: outcome of a write is unknown
	ErrUnsupported  = errors.New("not supported by object store") // 501 and the like
	ErrDenied       = errors.New("access denied")                 // 401, 403
	ErrChecksum     = errors.New("checksum refused or wrong")
)

// Bucket is an object store below one prefix. All methods may be called concurrently.
// Keys are slash separated, never start with a slash, and no key is the path prefix of another.
type Bucket interface {
	// Put creates or, where cond allows it, replaces an object. The body may be read more than once.
	// ErrExists: cond.IfNoneMatch and the key exists. ErrUnavailable: the outcome is unknown.
	Put(ctx context.Context, key string, b Body, cond Cond) (Info, error)
	// Get returns [off, off+n) of the object, to its end if n < 0. Fewer bytes than n only at the object's end.
	Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)
	Head(ctx context.Context, key string) (Info, error)
	// List yields the objects whose keys begin with prefix and are greater than after, in byte order of keys.
	List(ctx context.Context, prefix, after string) iter.Seq2[Info, error]
	// Delete removes the objects; a missing one is no error.
	Delete(ctx context.Context, keys ...string) error
}

// Body is what Put writes: rewindable, with its length and CRC-32C (Castagnoli) known beforehand.
type Body struct {
	R      io.ReaderAt
	Size   int64
	CRC32C uint32
}

// Cond is the condition of a Put. The zero value overwrites.
type Cond struct {
	IfNoneMatch bool   // If-None-Match: *, create only
	IfMatch     string // ETag that must be there
}

// Info describes an object as an answer showed it. Date is the store's clock at that answer: the only clock that
// expiry and leases trust (PROTOCOLS 2.5, 3.4).
type Info struct {
	Key      string
	Size     int64
	ETag     string
	Modified time.Time
	Date     time.Time
}
