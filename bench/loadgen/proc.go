package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func r3(f float64) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', 3, 64), 64)
	return v
}

func pids() (out []int) {
	for _, s := range strings.Split(*fPids, ",") {
		if n, err := strconv.Atoi(strings.TrimSpace(s)); err == nil {
			out = append(out, n)
		}
	}
	return
}

func procCPU(ps []int) (tot float64) {
	for _, p := range ps {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		if err != nil {
			continue
		}
		s := string(b)
		f := strings.Fields(s[strings.LastIndexByte(s, ')')+2:])
		u, _ := strconv.ParseFloat(f[11], 64)
		y, _ := strconv.ParseFloat(f[12], 64)
		tot += (u + y) / 100
	}
	return
}

func procMem(ps []int, key string) (tot float64) {
	for _, p := range ps {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p))
		for _, l := range strings.Split(string(b), "\n") {
			if strings.HasPrefix(l, key+":") {
				n, _ := strconv.ParseFloat(strings.Fields(l)[1], 64)
				tot += n / 1024
			}
		}
	}
	return
}

func selfCPU() float64 {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
}

type mark struct {
	t      time.Time
	client float64
	broker float64
	sys    [8]float64 // user nice system idle iowait irq softirq steal, seconds over all cores
}

func sysCPU() (v [8]float64) {
	b, _ := os.ReadFile("/proc/stat")
	l, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(l)[1:] {
		if i < 8 {
			n, _ := strconv.ParseFloat(f, 64)
			v[i] = n / 100
		}
	}
	return
}

func now() mark { return mark{time.Now(), selfCPU(), procCPU(pids()), sysCPU()} }

func fill(out map[string]any, a, b mark, recs, bytes int64) {
	el := b.t.Sub(a.t).Seconds()
	gb := float64(bytes) / 1e9
	out["elapsed_s"] = r3(el)
	out["records"] = recs
	out["bytes"] = bytes
	out["records_per_s"] = r3(float64(recs) / el)
	out["mb_per_s"] = r3(float64(bytes) / 1e6 / el)
	out["client_cpu_s"] = r3(b.client - a.client)
	var d [8]float64
	for i := range d {
		d[i] = b.sys[i] - a.sys[i]
	}
	busy := d[0] + d[1] + d[2] + d[5] + d[6]
	// what everything else on the machine burnt meanwhile, and how much the hypervisor took: the run's noise
	out["machine"] = map[string]any{"idle_s": r3(d[3]), "iowait_s": r3(d[4]), "steal_s": r3(d[7]), "other_cpu_s": r3(busy - (b.client - a.client) - (b.broker - a.broker))}
	if gb > 0 {
		out["client_cpu_s_per_gb"] = r3((b.client - a.client) / gb)
	}
	if ps := pids(); len(ps) > 0 {
		out["broker_cpu_s"] = r3(b.broker - a.broker)
		if gb > 0 {
			out["broker_cpu_s_per_gb"] = r3((b.broker - a.broker) / gb)
		}
		out["broker_cpu_us_per_record"] = r3((b.broker - a.broker) * 1e6 / float64(max(recs, 1)))
		out["broker_rss_mb"] = r3(procMem(ps, "VmRSS"))
		out["broker_peak_rss_mb"] = r3(procMem(ps, "VmHWM"))
	}
}
