package record

// minRecord is the size of the smallest record: length, attributes, two deltas, null key, null value, no headers.
const minRecord = 7

// fields says where the parts of one record are; positions count in the (decompressed) records of its batch.
type fields struct {
	start    int // of the length
	body     int // after the length
	end      int // exclusive
	tsDelta  int64
	offDelta int32
	offAt    int // of the offset delta
	offEnd   int
	key, val slot
	nheaders int32
	headers  int // of the first header
}

// slot is a byte string; n is -1 for null.
type slot struct {
	at int
	n  int32
}

func (s slot) of(p []byte) []byte {
	if s.n < 0 {
		return nil
	}
	return p[s.at : s.at+int(s.n) : s.at+int(s.n)]
}

// parse reads the record at p[pos:] and checks all of its structure, headers too. It returns what is wrong, or "".
// Kafka's decoder accepts the same, but for varints that overflow their type.
func (f *fields) parse(p []byte, pos int) string {
	f.start = pos
	size, at := varint32(p, pos)
	if at < 0 {
		return "bad record length"
	}
	if size < minRecord-1 {
		return "record length too small"
	}
	if int(size) > len(p)-at {
		return "record is longer than the batch"
	}
	f.body, f.end = at, at+int(size)
	p = p[:f.end]
	at++ // attributes, unused
	if f.tsDelta, at = varint64(p, at); at < 0 {
		return "bad timestamp delta"
	}
	f.offAt = at
	if f.offDelta, at = varint32(p, at); at < 0 {
		return "bad offset delta"
	}
	f.offEnd = at
	if f.key, at = parseSlot(p, at); at < 0 {
		return "bad key length"
	}
	if f.val, at = parseSlot(p, at); at < 0 {
		return "bad value length"
	}
	if f.nheaders, at = varint32(p, at); at < 0 || f.nheaders < 0 {
		return "bad number of headers"
	}
	f.headers = at
	if f.nheaders != 0 {
		if int(f.nheaders) > (f.end-at)/2 {
			return "more headers than fit in the record"
		}
		for range f.nheaders {
			var k slot
			if k, at = parseSlot(p, at); at < 0 || k.n < 0 {
				return "bad header key length"
			}
			if _, at = parseSlot(p, at); at < 0 {
				return "bad header value length"
			}
		}
	}
	if at != f.end {
		return "bytes left in the record"
	}
	return ""
}

// parseSlot reads a length and skips as many bytes. All negative lengths mean null, as in Kafka.
func parseSlot(p []byte, at int) (slot, int) {
	n, at := varint32(p, at)
	if at < 0 || int(n) > len(p)-at {
		return slot{}, -1
	}
	if n < 0 {
		return slot{at: at, n: -1}, at
	}
	return slot{at: at, n: n}, at + int(n)
}

// decodeHeaders reads the headers of a record that parse has passed.
func (f *fields) decodeHeaders(p []byte) []Header {
	if f.nheaders == 0 {
		return nil
	}
	hs := make([]Header, f.nheaders)
	at := f.headers
	var k, v slot
	for i := range hs {
		k, at = parseSlot(p, at)
		v, at = parseSlot(p, at)
		hs[i] = Header{Key: string(k.of(p)), Value: v.of(p)}
	}
	return hs
}
