package broker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/record"
	"github.com/varvelog/varve/tier"
)

// The benchmarks measure the broker alone: a second process is the client, which does nothing but write requests that were made
// beforehand and read responses. b.N requests go to it as a number, so b.Loop cannot be used.

const benchEnv = "VARVE_BENCH_CLIENT"

func TestMain(m *testing.M) {
	if spec := os.Getenv(benchEnv); spec != "" {
		if err := benchClient(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// benchSpec is what the client process does: N times Request, at most InFlight without an answer.
type benchSpec struct {
	Addr     string
	Request  []byte // with its length; the correlation id is not changed
	N        int
	InFlight int
}

func benchClient(spec string) error {
	raw, err := os.ReadFile(spec)
	if err != nil {
		return err
	}
	var s benchSpec
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
	slots := make(chan struct{}, s.InFlight)
	failed := make(chan error, 1)
	go func() {
		for range s.N {
			slots <- struct{}{}
			if _, err := conn.Write(s.Request); err != nil {
				failed <- err
				return
			}
		}
	}()
	r := bufio.NewReaderSize(conn, 1<<20)
	for range s.N {
		var size [4]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return err
		}
		if _, err := r.Discard(int(binary.BigEndian.Uint32(size[:]))); err != nil {
			return err
		}
		<-slots
	}
	fmt.Println("done")
	return nil
}

// benchRequests sends b.N times req from another process and reports what this one spent.
func benchRequests(b *testing.B, w *world, req kmsg.Request, bytesEach int) {
	b.Helper()
	spec, err := json.Marshal(benchSpec{Addr: w.addr, Request: formatter.AppendRequest(nil, req, 1), N: b.N, InFlight: 5})
	if err != nil {
		b.Fatal(err)
	}
	file := b.TempDir() + "/spec"
	if err := os.WriteFile(file, spec, 0o644); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchEnv+"="+file)
	cmd.Stderr = os.Stderr
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Scan()
	runtime.GC()
	b.SetBytes(int64(bytesEach))
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuSeconds()
	in.Write([]byte{1})
	if !lines.Scan() || lines.Text() != "done" {
		b.Fatal("the client failed")
	}
	spent := cpuSeconds() - before
	b.StopTimer()
	cmd.Wait()
	b.ReportMetric(spent/(float64(b.N)*float64(bytesEach)/1e9), "cpu-s/GB")
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

// kibBatch is a batch of n records of 1 KiB.
func kibBatch(b *testing.B, n int) []byte {
	recs := make([]record.Record, n)
	for i := range recs {
		recs[i] = record.Record{Offset: int64(i), Timestamp: now(), Value: bytes.Repeat([]byte{byte(i)}, 1024)}
	}
	out, err := record.Build(nil, record.BatchOptions{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, recs)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// benchConfig keeps disks from filling: small segments, little retained.
func benchConfig(t *meta.Topic) (localseg.Config, tier.TopicConfig) {
	return localseg.Config{Delete: true, SegmentBytes: 256 << 20, RetentionBytes: 256 << 20}, tier.TopicConfig{Name: t.Name}
}

func BenchmarkProduce(b *testing.B) {
	for _, tc := range []struct{ records, partitions int }{{16, 6}, {16, 1}, {256, 6}} {
		b.Run(fmt.Sprintf("%dKiB-%dp", tc.records, tc.partitions), func(b *testing.B) {
			w := newWorld(b, settings{config: benchConfig, retain: time.Second})
			topic := w.topic("t", tc.partitions, nil)
			batch := kibBatch(b, tc.records)
			req := produceReq(13, -1, topic, 0, batch)
			for p := 1; p < tc.partitions; p++ {
				more := req.Topics[0].Partitions[0]
				more.Partition = int32(p)
				req.Topics[0].Partitions = append(req.Topics[0].Partitions, more)
			}
			benchRequests(b, w, req, len(batch)*tc.partitions)
		})
	}
}

func BenchmarkFetch(b *testing.B) {
	for _, tc := range []struct{ batchKiB, rangeKiB int }{{16, 64}, {256, 256}, {256, 1024}} {
		b.Run(fmt.Sprintf("%dKiB-batches-%dKiB-range", tc.batchKiB, tc.rangeKiB), func(b *testing.B) {
			w := newWorld(b, settings{})
			topic := w.topic("t", 1, nil)
			c := w.dial()
			batch := kibBatch(b, tc.batchKiB)
			for n := 0; n < 64<<20; n += len(batch) {
				c.produce(topic, 0, bytes.Clone(batch))
			}
			req := fetchReq(18, topic, 0, 0)
			req.Topics[0].Partitions[0].PartitionMaxBytes = int32(tc.rangeKiB+tc.rangeKiB/8) << 10
			size := len(c.fetch(req).Topics[0].Partitions[0].RecordBatches)
			benchRequests(b, w, req, size)
		})
	}
}
