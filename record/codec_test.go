package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

func noise(n int) []byte {
	p := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(p)
	return p
}

func TestCodecsRoundTrip(t *testing.T) {
	inputs := map[string][]byte{
		"empty": {}, "one": {7}, "text": bytes.Repeat([]byte("sediment "), 30000), "noise": noise(200000),
		"block": make([]byte, 64<<10), "xerial block": noise(32 << 10),
	}
	for _, c := range codecs {
		for name, in := range inputs {
			levels := []int{0}
			if name == "text" {
				levels = []int{0, -1, 1, 3, 9, 19}
			}
			for _, level := range levels {
				z, err := c.compress([]byte("kept"), in, level)
				if err != nil || !bytes.HasPrefix(z, []byte("kept")) {
					t.Fatalf("%s %s: compress: %v", c, name, err)
				}
				got, err := c.decompress(nil, z[4:], len(in))
				if err != nil || !bytes.Equal(got, in) {
					t.Fatalf("%s %s level %d: %d bytes, %v", c, name, level, len(got), err)
				}
				if len(in) == 0 {
					continue
				}
				if _, err = c.decompress(nil, z[4:], len(in)-1); !errors.Is(err, ErrTooLarge) {
					t.Fatalf("%s %s: limit one too small: %v, want ErrTooLarge", c, name, err)
				}
				if got, err = c.decompress(nil, z[4:len(z)-1], len(in)); err == nil && bytes.Equal(got, in) && c != None {
					t.Fatalf("%s %s: cut short is accepted", c, name)
				}
			}
		}
	}
}

func TestCodersMadeInOneBubbleServeAnother(t *testing.T) {
	in := bytes.Repeat([]byte("sediment "), 30000)
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			for _, c := range codecs {
				z, err := c.compress(nil, in, 0)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := c.decompress(nil, z, len(in)); err != nil || !bytes.Equal(got, in) {
					t.Fatalf("%s: %v", c, err)
				}
			}
		})
	}
}

func TestDecompressionReusesTheBuffer(t *testing.T) {
	in := bytes.Repeat([]byte("sediment "), 3000)
	for _, c := range codecs {
		z, _ := c.compress(nil, in, 0)
		buf := make([]byte, 0, 1<<20)
		got, err := c.decompress(buf, z, 1<<30)
		if err != nil || &got[0] != &buf[:1][0] {
			t.Errorf("%s: another buffer (%v)", c, err)
		}
	}
}

func TestSnappyIsReadRawAndFramed(t *testing.T) {
	in := bytes.Repeat([]byte("varve "), 20000)
	framed, _ := Snappy.compress(nil, in, 0)
	if want := []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"); !bytes.HasPrefix(framed, want) {
		t.Fatalf("no xerial header: % x", framed[:16])
	}
	for name, src := range map[string][]byte{
		"raw": snappy.Encode(nil, in), "framed": framed,
		"concatenated": append(append([]byte(nil), framed...), framed...),
	} {
		want := in
		if name == "concatenated" {
			want = append(append([]byte(nil), in...), in...)
		}
		if got, err := Snappy.decompress(nil, src, len(want)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

func TestS2BlocksAreNotSnappy(t *testing.T) {
	in := []byte(string(noise(500)) + strings.Repeat("abcdefgh", 4) + strings.Repeat("x", 2000) + strings.Repeat("abcdefgh", 4))
	block := s2.EncodeBest(nil, in)
	if _, err := s2.Decode(nil, block); err != nil {
		t.Fatal(err)
	}
	if _, err := snappy.DecodeStrict(nil, block); err == nil {
		t.Fatal("the block uses no S2 extension: the test proves nothing")
	}
	for seed := range 50 { // the walk over the tags finds nothing in any snappy block
		plain := append(noise(seed*700), bytes.Repeat(noise(seed*5), 1+seed)...)
		for _, z := range [][]byte{snappy.Encode(nil, plain), s2.EncodeSnappy(nil, plain), s2.EncodeSnappyBest(nil, plain)} {
			if got, err := Snappy.decompress(nil, z, len(plain)); err != nil || !bytes.Equal(got, plain) {
				t.Fatalf("%d bytes of snappy: %v", len(plain), err)
			}
		}
	}
	if _, err := Snappy.decompress(nil, block, 1<<20); !errors.Is(err, errS2) {
		t.Fatalf("err = %v, want errS2", err)
	}
}

func lz4Frame1(t *testing.T, in []byte, opts ...lz4.Option) []byte {
	t.Helper()
	var z bytes.Buffer
	w := lz4.NewWriter(&z)
	if err := w.Apply(opts...); err != nil {
		t.Fatal(err)
	}
	w.Write(in)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return z.Bytes()
}

func TestLZ4FramesOfOthers(t *testing.T) {
	in := append(bytes.Repeat([]byte("varve "), 200000), noise(100000)...)
	for name, opts := range map[string][]lz4.Option{
		"defaults":        nil,
		"block checksums": {lz4.BlockChecksumOption(true)},
		"content size":    {lz4.SizeOption(uint64(len(in)))},
		"small blocks":    {lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)},
	} {
		z := lz4Frame1(t, in, opts...)
		if got, err := LZ4.decompress(nil, z, len(in)); err != nil || !bytes.Equal(got, in) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if name == "block checksums" {
			z[20] ^= 1
			if _, err := LZ4.decompress(nil, z, len(in)); !errors.Is(err, errLZ4Sum) {
				t.Errorf("flipped bit under a block checksum: %v", err)
			}
		}
	}
	ours, _ := LZ4.compress(nil, in, 0)
	var back bytes.Buffer
	if _, err := back.ReadFrom(lz4.NewReader(bytes.NewReader(ours))); err != nil || !bytes.Equal(back.Bytes(), in) {
		t.Errorf("the module does not read our frame: %v", err)
	}
}

func TestLZ4RefusesWhatKafkaRefuses(t *testing.T) {
	z, _ := LZ4.compress(nil, []byte("varve varve varve"), 0)
	for name, edit := range map[string]func(p []byte) []byte{
		"linked blocks":    func(p []byte) []byte { p[4] &^= 0x20; return fixLZ4(p) },
		"version":          func(p []byte) []byte { p[4] ^= 0xc0; return fixLZ4(p) },
		"dictionary":       func(p []byte) []byte { p[4] |= 1; return fixLZ4(p) },
		"block size":       func(p []byte) []byte { p[5] = 0x30; return fixLZ4(p) },
		"header checksum":  func(p []byte) []byte { p[6]++; return p },
		"magic":            func(p []byte) []byte { p[0]++; return p },
		"legacy":           func(p []byte) []byte { p[0] = 2; p[1] = 0x21; p[2] = 0x4c; return p },
		"no end mark":      func(p []byte) []byte { return p[:len(p)-4] },
		"bytes after":      func(p []byte) []byte { return append(p, 0) },
		"block too large":  func(p []byte) []byte { binary.LittleEndian.PutUint32(p[7:], 65537); return p },
		"block beyond end": func(p []byte) []byte { binary.LittleEndian.PutUint32(p[7:], 60000); return p },
	} {
		if _, err := LZ4.decompress(nil, edit(append([]byte(nil), z...)), 1<<20); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func fixLZ4(p []byte) []byte { p[6] = byte(xxHash32(p[4:6]) >> 8); return p }

func TestXXHash32KnownValues(t *testing.T) {
	for in, want := range map[string]uint32{
		"": 0x02cc5d05, "a": 0x550d7456, "abc": 0x32d153ff, "Nobody inspects the spammish repetition": 0xe2293b2f,
	} {
		if got := xxHash32([]byte(in)); got != want {
			t.Errorf("xxHash32(%q) = %08x, want %08x", in, got, want)
		}
	}
}

func TestZstdFramesOfOthers(t *testing.T) {
	in := append(bytes.Repeat([]byte("varve "), 300000), noise(300000)...)
	var stream bytes.Buffer
	w, err := zstd.NewWriter(&stream, zstd.WithEncoderCRC(true))
	if err != nil {
		t.Fatal(err)
	}
	w.Write(in)
	w.Close()
	if got, err := Zstd.decompress(nil, stream.Bytes(), len(in)); err != nil || !bytes.Equal(got, in) {
		t.Fatalf("streamed, no content size: %d bytes, %v", len(got), err)
	}
	skip := append([]byte{0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3}, stream.Bytes()...)
	two := append(skip, stream.Bytes()...)
	if got, err := Zstd.decompress(nil, two, 2*len(in)); err != nil || len(got) != 2*len(in) {
		t.Fatalf("skippable and two frames: %d bytes, %v", len(got), err)
	}
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	f()
	runtime.ReadMemStats(&b)
	return b.TotalAlloc - a.TotalAlloc
}

func TestBombsCostNoMoreThanTheLimit(t *testing.T) {
	zeroes := make([]byte, 64<<20)
	for _, c := range codecs[1:] {
		z, _ := c.compress(nil, zeroes, 0)
		var err error
		n := allocated(func() { _, err = c.decompress(nil, z, 1<<20) })
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v, want ErrTooLarge", c, err)
		}
		if n > 8<<20 { // coders made at first use
			t.Errorf("%s: %d bytes allocated for a limit of 1 MiB", c, n)
		}
	}
}

func TestClaimedSizesAreNotAllocated(t *testing.T) {
	// One raw block of one byte, in a frame that claims 1 GiB.
	zs := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x40, 9, 0, 0, 'x'}
	lz := []byte{0x04, 0x22, 0x4d, 0x18, 0x68, 0x70, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 1, 0, 0, 0x80, 'x', 0, 0, 0, 0}
	lz[14] = byte(xxHash32(lz[4:14]) >> 8)
	raw := append(binary.AppendUvarint(nil, 1<<30), 0, 'x')
	framed := append(append([]byte(nil), xerialHeader...), 0, 0, 0, byte(len(raw)))
	for name, c := range map[string]struct {
		codec Codec
		src   []byte
	}{"zstd": {Zstd, zs}, "lz4": {LZ4, lz}, "snappy": {Snappy, raw}, "xerial": {Snappy, append(framed, raw...)}} {
		got, err := c.codec.decompress(nil, c.src, 1<<30) // makes the coder
		if (err == nil) != (name == "lz4") {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		n := allocated(func() { c.codec.decompress(nil, c.src, 1<<30) })
		if n > 256<<10 {
			t.Errorf("%s: %d bytes allocated for %d bytes", name, n, len(c.src))
		}
	}
}
