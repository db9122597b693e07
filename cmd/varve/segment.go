package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/record"
)

func segmentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "segment",
		Short: "Look into a segment, of a local log or of the archive",
		Args:  exactly(0, "a verb: dump"),
		RunE:  func(*cobra.Command, []string) error { return usagef("varve segment takes a verb: dump") },
	}
	cmd.AddCommand(segmentDump())
	return cmd
}

func segmentDump() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dump FILE|OBJECT",
		Short: "Print the batches of a .log file or a segment object, and the object's footer",
		Long: `Dump prints a line for each batch, and whether its checksum holds. OBJECT is the URL of a segment object, or its key with
--repo. Exit code 4: something in it is damaged.`,
		Args: exactly(1, "one file or object"),
	}
	repo := repository(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, err := openSegment(cmd.Context(), *repo, args[0])
		if err != nil {
			return err
		}
		defer in.close()
		return dumpSegment(cmd.OutOrStdout(), in)
	}
	return cmd
}

// segmentInput is a segment's bytes.
type segmentInput struct {
	name  string
	r     io.ReaderAt
	size  int64
	close func() error
}

func openSegment(ctx context.Context, repo, name string) (segmentInput, error) {
	switch {
	case repo != "":
		at, err := repoURL("--repo", repo)
		if err != nil {
			return segmentInput{}, err
		}
		return openSegmentObject(ctx, at, name)
	case strings.Contains(name, "://"):
		// The prefix ends where the key of a segment object begins.
		for i := len(name); ; {
			if i = strings.LastIndex(name[:i], "/t/"); i < 0 {
				return segmentInput{}, usagef("%s is not the URL of a segment object; give --repo URL and the key", name)
			}
			if _, ok := manifest.ParseSegmentKey(name[i+1:]); ok {
				return openSegmentObject(ctx, name[:i], name[i+1:])
			}
		}
	}
	f, err := os.Open(name)
	if err != nil {
		return segmentInput{}, err
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		f.Close()
		return segmentInput{}, errors.Join(err, fmt.Errorf("%s is not a file", name))
	}
	return segmentInput{name, f, st.Size(), f.Close}, nil
}

func openSegmentObject(ctx context.Context, url, key string) (segmentInput, error) {
	b, err := openRepository(ctx, url)
	if err != nil {
		return segmentInput{}, err
	}
	i, err := b.Head(ctx, key)
	if err != nil {
		return segmentInput{}, fmt.Errorf("object %s: %w", key, err)
	}
	return segmentInput{key, &objectReader{ctx, b, key}, i.Size, func() error { return nil }}, nil
}

// objectReader reads ranges of one object, for the one command that it lives for.
type objectReader struct {
	ctx context.Context
	b   objstore.Bucket
	key string
}

func (r *objectReader) ReadAt(p []byte, off int64) (int, error) {
	rc, err := r.b.Get(r.ctx, r.key, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	defer rc.Close()
	n, err := io.ReadFull(rc, p)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// dumpMax bounds a footer or batch that is read whole.
const dumpMax = 1 << 30

func dumpSegment(w io.Writer, in segmentInput) error {
	data, footer, err := readFooter(in)
	damaged := err != nil
	if err != nil {
		fmt.Fprintf(w, "%s: footer: %v\n", in.name, err)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "byte\toffsets\trecords\tepoch\ttimestamps\tsize\tcodec\tproducer\tflags\tcrc")
	end, err := dumpBatches(tw, in, data)
	if ferr := tw.Flush(); ferr != nil {
		return ferr
	}
	if err != nil {
		damaged = true
		fmt.Fprintf(w, "%s: byte %d: %v\n", in.name, end, err)
	}
	if footer != nil {
		dumpFooter(w, footer)
	}
	if damaged {
		return quiet(exitFindings)
	}
	return nil
}

// readFooter finds the end of the data; a file without a trailer is a local log.
func readFooter(in segmentInput) (data int64, f *manifest.Footer, err error) {
	if in.size < manifest.TrailerLen {
		return in.size, nil, nil
	}
	tail := make([]byte, manifest.TrailerLen)
	if _, err := in.r.ReadAt(tail, in.size-manifest.TrailerLen); err != nil && !errors.Is(err, io.EOF) {
		return in.size, nil, err
	}
	if string(tail[12:]) != "VVSG" && strings.HasSuffix(in.name, ".log") {
		return in.size, nil, nil
	}
	pos, n, err := manifest.ParseTrailer(tail, in.size)
	if err != nil {
		return in.size, nil, err
	}
	if n > dumpMax {
		return pos, nil, fmt.Errorf("footer of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := in.r.ReadAt(b, pos); err != nil && !errors.Is(err, io.EOF) {
		return pos, nil, err
	}
	f, err = manifest.DecodeFooter(b)
	return pos, f, err
}

// dumpBatches prints a line for each batch. The error is at byte pos: the rest cannot be read.
func dumpBatches(w io.Writer, in segmentInput, data int64) (pos int64, err error) {
	var bad error
	r := &readAhead{r: in.r}
	for pos < data {
		head, err := r.at(pos, min(record.HeaderSize, data-pos))
		if err != nil {
			return pos, err
		}
		if len(head) < record.HeaderSize {
			return pos, fmt.Errorf("%d bytes are left: a torn batch", len(head))
		}
		size := 12 + int64(int32(binary.BigEndian.Uint32(head[8:])))
		if head[16] != 2 || size < record.HeaderSize || size > data-pos || size > dumpMax {
			return pos, fmt.Errorf("no batch of magic 2 begins here (magic %d, size %d, %d bytes left)", head[16], size, data-pos)
		}
		body, err := r.at(pos, size)
		if err != nil {
			return pos, err
		}
		b := record.Batch(body)
		crc := "ok"
		if err := b.Check(); err != nil {
			crc, bad = "BAD", err
		}
		producer := "-"
		if b.ProducerID() >= 0 {
			producer = fmt.Sprintf("%d epoch %d sequence %d", b.ProducerID(), b.ProducerEpoch(), b.BaseSequence())
		}
		fmt.Fprintf(w, "%d\t%d-%d\t%d\t%d\t%s to %s\t%d\t%s\t%s\t%s\t%s\n", pos, b.BaseOffset(), b.LastOffset(), b.Count(), b.LeaderEpoch(),
			stamp(b.BaseTimestamp()), stamp(b.MaxTimestamp()), len(b), b.Codec(), producer, batchFlags(b), crc)
		pos += size
	}
	return pos, bad
}

func batchFlags(b record.Batch) string {
	var list []string
	for _, f := range []struct {
		set  bool
		name string
	}{{b.Transactional(), "transactional"}, {b.Control(), "control"}, {b.LogAppendTime(), "log-append-time"}} {
		if f.set {
			list = append(list, f.name)
		}
	}
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ",")
}

// readAhead reads ascending ranges in large pieces.
type readAhead struct {
	r   io.ReaderAt
	buf []byte
	pos int64
}

const readAheadBytes = 4 << 20

func (r *readAhead) at(pos, n int64) ([]byte, error) {
	if pos < r.pos || pos+n > r.pos+int64(len(r.buf)) {
		if int64(cap(r.buf)) < max(n, readAheadBytes) {
			r.buf = make([]byte, max(n, readAheadBytes))
		}
		got, err := r.r.ReadAt(r.buf[:cap(r.buf)], pos)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		r.buf, r.pos = r.buf[:got], pos
	}
	off := pos - r.pos
	return r.buf[off:min(off+n, int64(len(r.buf)))], nil
}

func dumpFooter(w io.Writer, f *manifest.Footer) {
	fmt.Fprintf(w, "\nfooter: topic %s, partition %s, cluster %s, incarnation %d, uploaded in leader epoch %d\n", f.TopicName, f.Partition, f.Cluster, f.Incarnation, f.LeaderEpoch)
	fmt.Fprintf(w, "offsets [%d, %d), %d records in %d bytes, largest timestamp %s at offset %d\n", f.Base, f.End, f.Records, f.DataBytes, stamp(f.MaxTimestamp.Ms), f.MaxTimestamp.Offset)
	for _, e := range f.Epochs {
		fmt.Fprintf(w, "leader epoch %d from offset %d\n", e.Epoch, e.Start)
	}
	for _, a := range f.AppendTimes {
		if a.SpanMs > 0 {
			fmt.Fprintf(w, "appended %s to %s from offset %d\n", stamp(a.Ms), stamp(a.LastMs()), a.Offset)
			continue
		}
		fmt.Fprintf(w, "appended %s from offset %d\n", stamp(a.Ms), a.Offset)
	}
	for _, a := range f.Aborted {
		fmt.Fprintf(w, "aborted transaction of producer %d, offsets %d to %d\n", a.ProducerID, a.First, a.Last)
	}
	fmt.Fprintf(w, "%d chunks, %d index entries, %d bytes of producer state, SHA-256 %x\n", len(f.Chunks), len(f.Index), len(f.Producers), f.SHA256)
}
