package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// header is a request header of version 1, or 2 where the request is flexible (KIP-482). Version 0 belongs to no API that is served.
type header struct {
	key         int16
	version     int16
	correlation int32
	flexible    bool
	clientID    []byte // aliases the frame; nil: null
}

// headerBytes is the least that a frame has: key, version, correlation id.
const headerBytes = 8

// parseHeader splits a frame into header and body. flexible tells whether a version of the API is. The client id stays a string of
// the old form in version 2 too.
func parseHeader(frame []byte, flexible func(key, version int16) bool) (header, []byte, error) {
	c := cursor{b: frame}
	h := header{key: c.int16(), version: c.int16(), correlation: c.int32()}
	h.clientID = c.string(false)
	if c.bad {
		return h, nil, fmt.Errorf("request header: %w", errMalformed)
	}
	h.flexible = flexible(h.key, h.version)
	if h.flexible {
		c.tags()
		if c.bad {
			return h, nil, fmt.Errorf("request header tags: %w", errMalformed)
		}
	}
	return h, c.b, nil
}

// responseHeader appends the length to be patched by endResponse, the correlation id and, for flexible answers, an empty tag
// buffer. ApiVersions always has a header of version 0, for clients that do not know yet what the broker speaks.
func responseHeader(dst []byte, h header) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = appendInt32(dst, h.correlation)
	if h.flexible && kmsg.Key(h.key) != kmsg.ApiVersions {
		dst = append(dst, 0)
	}
	return dst
}

// flexibleVersion tells for each API from which version on it is flexible.
func flexibleVersion(key, version int16) bool {
	switch kmsg.Key(key) { // the hot ones without an allocation
	case kmsg.Produce:
		return version >= 9
	case kmsg.Fetch:
		return version >= 12
	}
	r := kmsg.RequestForKey(key)
	if r == nil {
		return false
	}
	r.SetVersion(version)
	return r.IsFlexible()
}
