package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// pair runs f on every peer in turn, o.runs times, turning the order round each time, and records what it returns.
func pair[B interface{ who() string }](o options, r *report, name string, bs []B, f func(b B, run int) (map[string]float64, error)) error {
	if !o.only.MatchString(name) {
		return nil
	}
	for run := range o.runs {
		for i := range bs {
			b := bs[(i+run)%len(bs)]
			m, err := f(b, run)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			r.add(name, b.who(), run, m)
		}
	}
	return nil
}

// startAll starts one broker of each peer and waits until all serve.
func startAll(o options, dir string) ([]*broker, error) {
	var bs []*broker
	for _, p := range peers(o) {
		b, err := launch(p, filepath.Join(o.work, dir+"-"+p.name))
		if err != nil {
			return nil, err
		}
		if _, err := ready(o, b); err != nil {
			return nil, err
		}
		bs = append(bs, b)
	}
	return bs, nil
}

func stopAll(bs []*broker) {
	for _, b := range bs {
		b.stop(syscall.SIGTERM)
	}
}

var produceCases = func() (cases []struct {
	name  string
	batch int
	parts int
	codec string
}) {
	for _, codec := range []string{"none", "lz4", "zstd"} {
		for _, batch := range []int{16, 256} {
			for _, parts := range []int{1, 6} {
				cases = append(cases, struct {
					name  string
					batch int
					parts int
					codec string
				}{fmt.Sprintf("produce/%dK/%dp/%s", batch, parts, codec), batch << 10, parts, codec})
			}
		}
	}
	return
}()

// loadSuite: produce throughput and broker CPU, 1 KiB records, acks=all.
func loadSuite(o options, r *report) error {
	names := []string{"idle", "memory"}
	for _, c := range produceCases {
		names = append(names, c.name)
	}
	if !anyMatch(o, names...) {
		return nil
	}
	bs, err := startAll(o, "load")
	if err != nil {
		return err
	}
	defer stopAll(bs)
	if err := pair(options{only: o.only, runs: 1}, r, "idle", bs, func(b *broker, _ int) (map[string]float64, error) {
		cpu, rss := idle(b, 30*time.Second)
		return map[string]float64{"cpu_percent": cpu, "rss_mb": rss}, nil
	}); err != nil {
		return err
	}
	for n, c := range produceCases {
		err := pair(o, r, c.name, bs, func(b *broker, run int) (map[string]float64, error) {
			topic := fmt.Sprintf("p%d-%d", n, run)
			payload := "letters"
			if c.codec != "none" {
				payload = "json"
			}
			res, err := load(o, b, "-mode", "produce", "-topic", topic, "-partitions", strconv.Itoa(c.parts), "-batch-bytes", strconv.Itoa(c.batch),
				"-compression", c.codec, "-payload", payload, "-duration", seconds(o.seconds), "-warmup", "2s")
			if err != nil {
				return nil, err
			}
			if _, err := load(o, b, "-mode", "delete", "-topic", topic); err != nil {
				return nil, err
			}
			return map[string]float64{"mb_per_s": res.num("mb_per_s"), "broker_cpu_s_per_gb": res.num("broker_cpu_s_per_gb")}, nil
		})
		if err != nil {
			return err
		}
	}
	return pair(options{only: o.only, runs: 1}, r, "memory", bs, func(b *broker, _ int) (map[string]float64, error) {
		return map[string]float64{"peak_rss_mb": memory(b, "VmHWM")}, nil
	})
}

// latencySuite: 2,000 records a second without linger, end to end.
func latencySuite(o options, r *report) error {
	if !anyMatch(o, "latency/2000") {
		return nil
	}
	bs, err := startAll(o, "latency")
	if err != nil {
		return err
	}
	defer stopAll(bs)
	return pair(o, r, "latency/2000", bs, func(b *broker, run int) (map[string]float64, error) {
		res, err := load(o, b, "-mode", "e2e", "-topic", fmt.Sprintf("l-%d", run), "-partitions", "6", "-rate", "2000", "-linger", "0s",
			"-duration", seconds(2*o.seconds), "-warmup", "3s")
		if err != nil {
			return nil, err
		}
		return map[string]float64{"p50_ms": res.num("latency.p50_ms"), "p99_ms": res.num("latency.p99_ms"), "produce_p99_ms": res.num("produce_latency.p99_ms")}, nil
	})
}

// fetchSuite: what was just written, read by one consumer.
func fetchSuite(o options, r *report) error {
	if !anyMatch(o, "fetch/hot") {
		return nil
	}
	bs, err := startAll(o, "fetch")
	if err != nil {
		return err
	}
	defer stopAll(bs)
	for _, b := range bs {
		if _, err := load(o, b, "-mode", "produce", "-topic", "f", "-partitions", "6", "-batch-bytes", "262144", "-records", "2097152", "-duration", "120s"); err != nil {
			return err
		}
	}
	return pair(o, r, "fetch/hot", bs, func(b *broker, _ int) (map[string]float64, error) {
		res, err := load(o, b, "-mode", "consume", "-topic", "f")
		if err != nil {
			return nil, err
		}
		return map[string]float64{"mb_per_s": res.num("mb_per_s"), "broker_cpu_s_per_gb": res.num("broker_cpu_s_per_gb")}, nil
	})
}

// startSuite: times to serve: empty, and with 2,000 partitions that have each been written to, after SIGTERM and after kill -9.
func startSuite(o options, r *report) error {
	const partitions = "2000"
	for run := range o.runs {
		for i := range peers(o) {
			p := peers(o)[(i+run)%len(peers(o))]
			if !anyMatch(o, "start/empty", "start/2000") {
				return nil
			}
			dir := filepath.Join(o.work, fmt.Sprintf("start-%s-%d", p.name, run))
			if err := startRun(o, r, p, dir, partitions, run); err != nil {
				return err
			}
		}
	}
	return nil
}

func startRun(o options, r *report, p peer, dir, partitions string, run int) error {
	b, err := launch(p, dir)
	if err != nil {
		return err
	}
	res, err := ready(o, b)
	if err != nil {
		return err
	}
	r.add("start/empty", p.name, run, map[string]float64{"ready_ms": res.num("all_ms")})
	at := time.Now()
	if _, err := load(o, b, "-mode", "create", "-topic", "many", "-partitions", partitions); err != nil {
		return err
	}
	created := time.Since(at)
	if _, err := load(o, b, "-mode", "produce", "-topic", "many", "-record-size", "100", "-linger", "0s", "-batch-bytes", "1024", "-rate", "20000", "-duration", "4s"); err != nil {
		return err
	}
	m := map[string]float64{"create_ms": float64(created.Milliseconds())}
	for _, how := range []struct {
		metric string
		sig    syscall.Signal
	}{{"ready_clean_ms", syscall.SIGTERM}, {"ready_killed_ms", syscall.SIGKILL}} {
		if err := b.stop(how.sig); err != nil {
			return err
		}
		if b, err = launch(p, dir); err != nil {
			return err
		}
		if res, err = ready(o, b, "-topic", "many", "-expect-partitions", partitions); err != nil {
			return err
		}
		m[how.metric] = res.num("all_ms")
	}
	r.add("start/2000", p.name, run, m)
	return b.stop(syscall.SIGTERM)
}

func seconds(s float64) string { return fmt.Sprintf("%gs", s) }

func anyMatch(o options, names ...string) bool {
	for _, n := range names {
		if o.only.MatchString(n) {
			return true
		}
	}
	return false
}
