package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report collects one row per case, broker and metric, and the ratios of runs with the same number.
type report struct {
	order []string
	rows  map[string]*row
}

type row struct {
	Case   string    `json:"case"`
	Metric string    `json:"metric"`
	Varve  []float64 `json:"varve"`
	Peer   []float64 `json:"peer,omitempty"`
	PeerIs string    `json:"peer_is,omitempty"`
	Ratio  *spread   `json:"ratio,omitempty"` // varve / peer, pair by pair
	Goal   string    `json:"goal,omitempty"`
	Met    *bool     `json:"met,omitempty"`
}

type spread struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

func spreadOf(v []float64) *spread {
	if len(v) == 0 {
		return nil
	}
	s := slices.Sorted(slices.Values(v))
	return &spread{s[0], s[len(s)/2], s[len(s)-1]}
}

func (r *report) add(name, who string, run int, m map[string]float64) {
	if r.rows == nil {
		r.rows = map[string]*row{}
	}
	var metrics []string
	for k := range m {
		metrics = append(metrics, k)
	}
	slices.Sort(metrics)
	for _, k := range metrics {
		id := name + " " + k
		w := r.rows[id]
		if w == nil {
			w = &row{Case: name, Metric: k}
			r.rows[id] = w
			r.order = append(r.order, id)
		}
		if who == "varve" {
			w.Varve = append(w.Varve, m[k])
		} else {
			w.Peer, w.PeerIs = append(w.Peer, m[k]), who
		}
	}
	fmt.Fprintf(os.Stderr, "%s  %-26s %-8s run %d  %v\n", time.Now().UTC().Format("15:04:05"), name, who, run+1, m)
}

// goal is what a figure should reach: a ratio to the peer, or an absolute value.
type goal struct {
	prefix, metric string
	ratio          bool
	most           bool // at most, else at least
	value          float64
}

var goals = []goal{
	{"produce/16K/6p/none", "broker_cpu_s_per_gb", true, true, 0.40},
	{"produce/256K/6p/none", "broker_cpu_s_per_gb", true, true, 0.50},
	{"produce/16K/6p/none", "mb_per_s", true, false, 1.5},
	{"produce/256K/6p/none", "mb_per_s", true, false, 1.3},
	{"latency/2000", "p99_ms", true, true, 0.8},
	{"fetch/hot", "broker_cpu_s_per_gb", true, true, 0.60},
	{"memory", "peak_rss_mb", true, true, 1.0 / 6},
	{"idle", "cpu_percent", false, true, 1},
	{"start/empty", "ready_ms", false, true, 700},
	{"start/2000", "create_ms", false, true, 1000},
	{"start/2000", "ready_clean_ms", false, true, 1500},
	{"start/2000", "ready_killed_ms", false, true, 3000},
	{"fetch/archived", "mb_per_s", true, false, 0.80},
	{"failover/kill", "max_ack_gap_ms", false, true, 1000},
	{"failover/kill-quorum", "max_ack_gap_ms", false, true, 2500},
	{"failover/term", "max_ack_gap_ms", false, true, 100},
	{"produce/rf3/16K", "mb_per_s", true, false, 1.5},
	{"produce/rf3/16K", "broker_cpu_s_per_gb", true, true, 0.50},
	{"produce/rf3/256K", "mb_per_s", true, false, 1.5},
	{"produce/rf3/256K", "broker_cpu_s_per_gb", true, true, 0.50},
	{"rf3/2000", "failover_ms", false, true, 3000},
	{"rf3/2000", "idle_cpu_percent", false, true, 3},
}

// finish computes ratios and holds medians to their goals.
func (r *report) finish() []*row {
	var out []*row
	for _, id := range r.order {
		w := r.rows[id]
		var ratios []float64
		for i := range min(len(w.Varve), len(w.Peer)) {
			if w.Peer[i] != 0 {
				ratios = append(ratios, w.Varve[i]/w.Peer[i])
			}
		}
		w.Ratio = spreadOf(ratios)
		for _, g := range goals {
			if g.prefix != w.Case || g.metric != w.Metric {
				continue
			}
			got := spreadOf(w.Varve)
			if g.ratio {
				got = w.Ratio
			}
			word := "at least"
			if g.most {
				word = "at most"
			}
			unit := ""
			if g.ratio {
				unit = " of the peer"
			}
			w.Goal = fmt.Sprintf("%s %.3g%s", word, g.value, unit)
			if got != nil {
				met := got.Median >= g.value
				if g.most {
					met = got.Median <= g.value
				}
				w.Met = &met
			}
		}
		out = append(out, w)
	}
	return out
}

func (r *report) print(to io.Writer) {
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "case\tmetric\tvarve min/med/max\tpeer min/med/max\tratio min/med/max\tgoal\t")
	for _, w := range r.finish() {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t\n", w.Case, w.Metric, w.Varve3(), w.Peer3(), w.Ratio3(), w.GoalText())
	}
	t.Flush()
}

func three(s *spread) string {
	if s == nil {
		return "-"
	}
	return fmt.Sprintf("%.3g / %.3g / %.3g", s.Min, s.Median, s.Max)
}

func (w *row) Varve3() string { return three(spreadOf(w.Varve)) }
func (w *row) Peer3() string  { return three(spreadOf(w.Peer)) }
func (w *row) Ratio3() string { return three(w.Ratio) }

func (w *row) GoalText() string {
	switch {
	case w.Goal == "" || w.Met == nil:
		return w.Goal
	case *w.Met:
		return w.Goal + ": met"
	}
	return w.Goal + ": NOT MET"
}

// write leaves PREFIX.json, PREFIX.md and PREFIX.svg.
func (r *report) write(prefix string) error {
	rows := r.finish()
	head := map[string]any{"time": time.Now().UTC().Format(time.RFC3339), "cores": runtime.NumCPU(), "go": runtime.Version(), "rows": rows}
	text, err := json.MarshalIndent(head, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(prefix+".json", append(text, '\n'), 0o644); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# varve beside Apache Kafka 4.4\n\nOne run of `make bench` on %d cores, %s; minimum / median / maximum of the runs. The ratio is varve's figure over the peer's, pair by\npair: the machine's speed drops out. The peer of `fetch/archived` is a plain GET of the same objects from the same S3 server.\n\n", runtime.NumCPU(), time.Now().UTC().Format("2006-01-02"))
	b.WriteString("| case | metric | varve | peer | ratio | goal |\n|---|---|---|---|---|---|\n")
	for _, w := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", w.Case, w.Metric, w.Varve3(), w.Peer3(), w.Ratio3(), w.GoalText())
	}
	b.WriteString("\n![ratios](bench.svg)\n")
	if err := os.WriteFile(prefix+".md", []byte(b.String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(prefix+".svg", plot(rows), 0o644)
}
