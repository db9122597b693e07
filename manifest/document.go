package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// The small objects that an operator may want to look at are JSON documents of one line. Their first field is the
// format's version, their last one the CRC-32C of everything before it, so that damage is found in them as everywhere:
//
//	{"format":1, ... ,"crc32c":"0a1b2c3d"}
//
// A document has one encoding only: what does not encode to the very bytes that were read is refused.
const (
	documentVersion = 1
	documentMax     = 4 << 20
	crcField        = `,"crc32c":"%08x"}` + "\n"
	crcLen          = len(`,"crc32c":"00000000"}`) + 1
)

func encodeDocument(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	b := buf.Bytes()
	b = b[:len(b)-len("}\n")]
	if len(b)+crcLen > documentMax {
		return nil, fmt.Errorf("document of %d bytes, at most %d", len(b)+crcLen, documentMax)
	}
	return sealDocument(b), nil
}

// sealDocument appends the CRC-32C and closes the document.
func sealDocument(b []byte) []byte { return fmt.Appendf(b, crcField, crc32c(b)) }

// decodeDocument checks the CRC, then the version, then reads the rest into v, which must not have an own format field
// other than one that takes the version.
func decodeDocument(b []byte, v any) error {
	if len(b) > documentMax || len(b) < crcLen {
		return corruptf(0, "document of %d bytes", len(b))
	}
	at := len(b) - crcLen
	if want := fmt.Sprintf(crcField, crc32c(b[:at])); string(b[at:]) != want {
		return corruptf(at, "document ends with %q, want %q", b[at:], want)
	}
	if !utf8.Valid(b) {
		return corruptf(0, "document is not UTF-8")
	}
	plain := append(bytes.Clone(b[:at]), '}')
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(plain, &head); err != nil {
		return corruptf(0, "%w", err)
	}
	switch {
	case head.Format < 1:
		return corruptf(0, "format %d", head.Format)
	case head.Format > documentVersion:
		return fmt.Errorf("document format %d, known up to %d: %w", head.Format, documentVersion, ErrUnsupported)
	}
	dec := json.NewDecoder(bytes.NewReader(plain))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return corruptf(0, "%w", err)
	}
	again, err := encodeDocument(v)
	if err != nil {
		return corruptf(0, "%w", err)
	}
	if !bytes.Equal(again, b) {
		return &CorruptError{Err: errors.New("document is not in its one encoding")}
	}
	return nil
}

// checkText refuses what JSON would silently change.
func checkText(what string, list ...string) error {
	for _, s := range list {
		if !utf8.ValidString(s) {
			return fmt.Errorf("%s %q is not UTF-8", what, s)
		}
	}
	return nil
}
