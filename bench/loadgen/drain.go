package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// modeDrain reads partition 0 of a topic from its start to its end over one plain connection to a single broker, as a whole GET of
// an object is read: the bytes are taken and thrown away, batch headers alone are looked at. It is the consumer that costs least,
// so that what is measured is the broker.
func modeDrain(ctx context.Context) {
	cl, err := kgo.NewClient(base()...)
	die(err)
	adm := kadm.NewClient(cl)
	starts, err := adm.ListStartOffsets(ctx, *fTopic)
	die(err)
	ends, err := adm.ListEndOffsets(ctx, *fTopic)
	die(err)
	cl.Close()
	from, _ := starts.Lookup(*fTopic, 0)
	to, _ := ends.Lookup(*fTopic, 0)
	nc, err := net.Dial("tcp", strings.Split(*fBrokers, ",")[0])
	die(err)
	defer nc.Close()
	die(nc.SetDeadline(time.Now().Add(*fTimeout)))
	d := drain{nc: nc, br: bufio.NewReaderSize(nc, 4<<10)}
	a := now()
	for at := from.Offset; at < to.Offset; {
		at, err = d.fetch(at)
		die(err)
	}
	out := common()
	fill(out, a, now(), to.Offset-from.Offset, d.bytes)
	emit(out)
}

type drain struct {
	nc    net.Conn
	br    *bufio.Reader
	frame []byte // reused
	bytes int64  // of record batches
}

// fetch sends one Fetch and returns the offset after the last batch of the answer.
func (d *drain) fetch(at int64) (next int64, err error) {
	const version = 12
	req := kmsg.NewPtrFetchRequest()
	req.Version = version
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, int32(*fFetchMax)
	t := kmsg.NewFetchRequestTopic()
	t.Topic = *fTopic
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = at, int32(*fPartMax)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	if _, err := d.nc.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("drain")).AppendRequest(nil, req, 1)); err != nil {
		return 0, err
	}
	var head [4]byte
	if _, err := io.ReadFull(d.br, head[:]); err != nil {
		return 0, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if cap(d.frame) < n {
		d.frame = make([]byte, n+n/4)
	}
	frame := d.frame[:n]
	if _, err := io.ReadFull(d.br, frame); err != nil {
		return 0, err
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = version
	if err := resp.ReadFrom(frame[5:]); err != nil { // correlation id, no tags
		return 0, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("answer is not of one partition")
	}
	got := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return 0, fmt.Errorf("fetch from offset %d: %w", at, err)
	}
	d.bytes += int64(len(got.RecordBatches))
	return lastOffset(got.RecordBatches, at)
}

// lastOffset walks the headers of batches; at where there is none. The last batch may be cut off.
func lastOffset(b []byte, at int64) (next int64, err error) {
	const lengthAt, deltaAt, header = 8, 23, 61
	for next = at; len(b) >= header; {
		size := 12 + int(binary.BigEndian.Uint32(b[lengthAt:]))
		if size > len(b) {
			break
		}
		if size < header {
			return 0, fmt.Errorf("batch of %d bytes at offset %d", size, next)
		}
		next = int64(binary.BigEndian.Uint64(b)) + int64(binary.BigEndian.Uint32(b[deltaAt:])) + 1
		b = b[size:]
	}
	return next, nil
}
