package objstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrUnsafe is what Probe returns for a store that lacks what the archive's protocols rest on.
var ErrUnsafe = errors.New("the object store is not safe for an archive")

// Findings is what Probe saw. A false field was seen to be missing, or not reached because of an error before.
type Findings struct {
	ConditionalCreate bool // If-None-Match: * creates once and is refused afterwards; required
	Checksum          bool // a body that does not match its CRC-32C is refused and leaves nothing; required
	RangedReads       bool // ranges have exactly the bytes asked for, fewer only at the end; required
	ListAfterWrite    bool // a listing shows what was just written, and not what was just deleted; required
	ByteOrder         bool // listings are in byte order of keys and begin after a given key; required
	DateHeader        bool // answers tell the store's time; required, since expiry and leases go by it
	IfMatch           bool // replacing with If-Match; optional

	ClockDifference time.Duration // the store's clock minus ours, to within a second and half a round trip
	RoundTrip       time.Duration // of one small request
	Leftovers       int           // objects of crashed probes, removed
	Warnings        []string
}

// ProbePrefix is where probes write: objects that another broker's probe may have there at any time, and that belong to nobody.
const ProbePrefix = "probe/"

const (
	probeFirst   = 8 * time.Second  // a wrong address or authority is told within ten seconds
	probeAll     = 60 * time.Second // all of it
	leftoverAge  = time.Hour        // by the store's clock: what is younger may be another broker's
	clockWarning = time.Minute
)

// Probe tries what the archive relies on (DESIGN 7) below the key prefix probe/ of b, with names of its own, so that
// several may run at once, and removes them again. The error says what is wrong, ErrUnsafe if it is a property of the
// store and not a failed request. Findings are those made until then.
func Probe(ctx context.Context, b Bucket) (Findings, error) {
	ctx, cancel := context.WithTimeout(ctx, probeAll)
	defer cancel()
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return Findings{}, err
	}
	p := &probe{b: b, dir: ProbePrefix + hex.EncodeToString(id[:]) + "/"}
	err := p.run(ctx)
	cleanErr := p.clean(ctx)
	if err == nil && cleanErr != nil {
		err = fmt.Errorf("probe object store: remove what the probe wrote: %w", cleanErr)
	}
	return p.f, err
}

type probe struct {
	b    Bucket
	dir  string
	keys []string // that may exist
	f    Findings
	info Info // of the first object
}

var probeBytes = []byte("varve probes whether this store keeps its promises\n")

func (p *probe) run(ctx context.Context) error {
	steps := []struct {
		what string
		do   func(context.Context) (problem string, err error)
		ok   *bool
	}{
		{"write a first object", p.first, nil},
		{"tell the time", p.date, &p.f.DateHeader},
		{"create conditionally", p.create, &p.f.ConditionalCreate},
		{"read ranges", p.ranges, &p.f.RangedReads},
		{"list in byte order", p.order, &p.f.ByteOrder},
		{"list after writing", p.listed, &p.f.ListAfterWrite},
		{"refuse a wrong checksum", p.checksum, &p.f.Checksum},
	}
	var unsafe []string
	for _, s := range steps {
		problem, err := s.do(ctx)
		if err != nil {
			return fmt.Errorf("probe object store: %s: %w", s.what, err)
		}
		if problem != "" {
			unsafe = append(unsafe, problem)
		} else if s.ok != nil {
			*s.ok = true
		}
	}
	if err := p.ifMatch(ctx); err != nil {
		return fmt.Errorf("probe object store: replace conditionally: %w", err)
	}
	if len(unsafe) > 0 {
		return fmt.Errorf("probe object store: %w: %s", ErrUnsafe, strings.Join(unsafe, "; "))
	}
	return nil
}

func (p *probe) put(ctx context.Context, name string, body Body, c Cond) (Info, error) {
	p.keys = append(p.keys, p.dir+name)
	return p.b.Put(ctx, p.dir+name, body, c)
}

// first has a short limit of its own: it is the request that meets wrong addresses, certificates and credentials.
func (p *probe) first(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeFirst)
	defer cancel()
	info, err := p.put(ctx, "o-b", BytesBody(probeBytes), Cond{IfNoneMatch: true})
	if errors.Is(err, ErrUnsupported) {
		return "", fmt.Errorf("%w: it refuses If-None-Match: %w", ErrUnsafe, err)
	}
	p.info = info
	return "", err
}

func (p *probe) date(ctx context.Context) (string, error) {
	sent := time.Now()
	info, err := p.b.Head(ctx, p.dir+"o-b")
	if err != nil {
		return "", err
	}
	p.f.RoundTrip = time.Since(sent)
	if info.Date.IsZero() || p.info.Date.IsZero() {
		return "its answers have no Date header, which expiry and leases go by", nil
	}
	p.f.ClockDifference = info.Date.Sub(sent.Add(p.f.RoundTrip / 2)).Round(time.Millisecond)
	if d := p.f.ClockDifference.Abs(); d > clockWarning {
		p.f.Warnings = append(p.f.Warnings, fmt.Sprintf("this machine's clock and the store's differ by %s", d.Round(time.Second)))
	}
	return "", nil
}

func (p *probe) create(ctx context.Context) (string, error) {
	_, err := p.put(ctx, "o-b", BytesBody([]byte("other bytes")), Cond{IfNoneMatch: true})
	switch {
	case err == nil:
		return "it ignores If-None-Match: two writers would overwrite each other", nil
	case errors.Is(err, ErrExists):
		return "", nil
	}
	return "", err
}

func (p *probe) ranges(ctx context.Context) (string, error) {
	size := int64(len(probeBytes))
	for _, r := range [][2]int64{{0, -1}, {0, 5}, {7, 9}, {size - 3, 10}, {5, -1}, {size, 4}, {size + 9, -1}} {
		off, n := r[0], r[1]
		from := min(off, size)
		end := size
		if n >= 0 {
			end = min(size, from+n)
		}
		got, err := p.read(ctx, off, n)
		if err != nil {
			return "", err
		}
		if !bytes.Equal(got, probeBytes[from:end]) {
			return fmt.Sprintf("asked for %d bytes at %d of %d it gives %d others", n, off, size, len(got)), nil
		}
	}
	return "", nil
}

func (p *probe) read(ctx context.Context, off, n int64) ([]byte, error) {
	rc, err := p.b.Get(ctx, p.dir+"o-b", off, n)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	var buf bytes.Buffer
	_, err = buf.ReadFrom(rc)
	return buf.Bytes(), err
}

// order writes keys around a slash, which stores that list directory by directory show in another order.
func (p *probe) order(ctx context.Context) (string, error) {
	names := []string{"o-b", "o.c", "o/1", "o/2", "o0"}
	for _, name := range names[1:] {
		if _, err := p.put(ctx, name, BytesBody([]byte(name)), Cond{IfNoneMatch: true}); err != nil {
			return "", err
		}
	}
	for i, after := range append([]string{""}, names...) {
		if after != "" {
			after = p.dir + after
		}
		got, err := p.list(ctx, after)
		if errors.Is(err, ErrUnsupported) {
			return "it lists out of byte order", nil
		}
		if err != nil {
			return "", err
		}
		if want := strings.Join(names[i:], " "); strings.Join(got, " ") != want {
			return fmt.Sprintf("a listing after %q shows %q, written were %q: it lists late or out of byte order", after, strings.Join(got, " "), want), nil
		}
	}
	return "", nil
}

func (p *probe) list(ctx context.Context, after string) ([]string, error) {
	var names []string
	for info, err := range p.b.List(ctx, p.dir, after) {
		if err != nil {
			return nil, err
		}
		names = append(names, strings.TrimPrefix(info.Key, p.dir))
	}
	return names, nil
}

func (p *probe) listed(ctx context.Context) (string, error) {
	if err := p.b.Delete(ctx, p.dir+"o/2", p.dir+"o0"); err != nil {
		return "", err
	}
	got, err := p.list(ctx, "")
	if err != nil && !errors.Is(err, ErrUnsupported) {
		return "", err
	}
	if len(got) != 3 {
		return fmt.Sprintf("of three objects, after two were deleted, a listing shows %d", len(got)), nil
	}
	return "", nil
}

func (p *probe) checksum(ctx context.Context) (string, error) {
	body := BytesBody(probeBytes)
	body.CRC32C ^= 1
	_, err := p.put(ctx, "damaged", body, Cond{IfNoneMatch: true})
	if err == nil {
		return "it takes a body that does not match its checksum", nil
	}
	if !errors.Is(err, ErrChecksum) {
		return "", fmt.Errorf("want a refusal of the checksum: %w", err)
	}
	if _, err := p.b.Head(ctx, p.dir+"damaged"); err == nil {
		return "it keeps a body that it has refused for its checksum", nil
	} else if !errors.Is(err, ErrNotFound) {
		return "", err
	}
	return "", nil
}

func (p *probe) ifMatch(ctx context.Context) error {
	if p.info.ETag == "" {
		p.f.Warnings = append(p.f.Warnings, "its answers have no ETag: If-Match is not used")
		return nil
	}
	info, err := p.put(ctx, "o-b", BytesBody([]byte("replaced")), Cond{IfMatch: p.info.ETag})
	if err == nil && info.ETag != p.info.ETag {
		_, err = p.put(ctx, "o-b", BytesBody([]byte("by a stale writer")), Cond{IfMatch: p.info.ETag})
	}
	switch {
	case errors.Is(err, ErrPrecondition) && info.ETag != "":
		p.f.IfMatch = true
	case errors.Is(err, ErrThrottled), errors.Is(err, ErrUnavailable), errors.Is(err, ErrDenied):
		return err
	default:
		p.f.Warnings = append(p.f.Warnings, "it does not replace with If-Match: renewals go without")
	}
	return nil
}

// clean removes what this probe wrote, also after ctx has ended, and what crashed ones left long ago.
func (p *probe) clean(ctx context.Context) error {
	limit := probeFirst
	if p.info.Key == "" {
		limit = time.Second // nothing worked, and the error is not to wait for a store that is not there
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := p.b.Delete(ctx, p.keys...); err != nil {
		return err
	}
	var old []string
	for info, err := range p.b.List(ctx, ProbePrefix, "") {
		if err != nil {
			return nil // run has listed too, and has said what is wrong with listings
		}
		if !info.Modified.IsZero() && info.Date.Sub(info.Modified) > leftoverAge && len(old) < 1000 {
			old = append(old, info.Key)
		}
	}
	if len(old) == 0 {
		return nil
	}
	p.f.Leftovers = len(old)
	return p.b.Delete(ctx, old...)
}
