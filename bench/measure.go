package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// result is loadgen's JSON line.
type result map[string]any

// num follows a path of keys, "latency.p99_ms"; 0 where there is nothing.
func (r result) num(path string) float64 {
	var v any = map[string]any(r)
	for _, k := range strings.Split(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return 0
		}
		v = m[k]
	}
	f, _ := v.(float64)
	return f
}

// target is what the load generator runs against: one broker or several.
type target interface {
	addr() string // one or more, comma separated
	pid() string
	String() string
}

// load runs the load generator against b.
func load(o options, b target, args ...string) (result, error) {
	cmd := exec.Command(o.loadgen, append([]string{"-brokers", b.addr(), "-broker-pids", b.pid()}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var r result
	if e := json.Unmarshal(out, &r); e != nil && err == nil {
		err = e
	}
	if err != nil {
		return nil, fmt.Errorf("%s: loadgen %s: %w\n%s", b, strings.Join(args, " "), err, out)
	}
	if e, ok := r["first_error"]; ok {
		return nil, fmt.Errorf("%s: loadgen %s: a record failed: %v", b, strings.Join(args, " "), e)
	}
	return r, nil
}

// ready waits until b serves, and with topic until its partitions have leaders; it returns the milliseconds since the start of
// the process.
func ready(o options, b *broker, args ...string) (result, error) {
	return load(o, b, append([]string{"-mode", "ready", "-timeout", "90s", "-since-ns", strconv.FormatInt(b.started.UnixNano(), 10)}, args...)...)
}

// cpuSeconds that b has burnt so far.
func cpuSeconds(b *broker) float64 {
	text, err := os.ReadFile("/proc/" + b.pid() + "/stat")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) / 100
}

// memory reads VmRSS or VmHWM of b, MB.
func memory(b *broker, key string) float64 {
	text, _ := os.ReadFile("/proc/" + b.pid() + "/status")
	for _, l := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(l, key+":"); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024
		}
	}
	return 0
}

// idle lets b rest, first until what a start has left to do is done, and returns its share of a core, percent, and its memory, MB.
func idle(b *broker, d time.Duration) (cpu, rss float64) {
	time.Sleep(10 * time.Second)
	before, at := cpuSeconds(b), time.Now()
	time.Sleep(d)
	return 100 * (cpuSeconds(b) - before) / time.Since(at).Seconds(), memory(b, "VmRSS")
}
