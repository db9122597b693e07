// Bench measures varve beside Apache Kafka: both run on this machine, each case is run on one and then on the other, three
// times, by the same client, and the ratios of the pairs are what counts. `make bench` calls it through bench/run.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
)

type options struct {
	varve, kafka, loadgen string
	work, out             string
	runs                  int
	seconds               float64
	only                  *regexp.Regexp
	kafkaToo              bool
}

func main() {
	var o options
	flag.StringVar(&o.varve, "varve", "bin/varve", "varve's binary")
	flag.StringVar(&o.kafka, "kafka", ".cache/kafka", "an assembled Kafka")
	flag.StringVar(&o.loadgen, "loadgen", ".cache/bench/loadgen", "the load generator's binary")
	flag.StringVar(&o.work, "work", "", "directory for data (default: a new one below the system's, removed at the end)")
	flag.StringVar(&o.out, "out", "docs/bench", "prefix of the outputs: .json, .md, .svg")
	flag.IntVar(&o.runs, "runs", 3, "runs of each case on each broker")
	flag.Float64Var(&o.seconds, "seconds", 6, "measured seconds of a produce run")
	flag.BoolVar(&o.kafkaToo, "peer", true, "run Kafka too; without it there are no ratios")
	only := flag.String("only", "", "run only cases that match this expression")
	flag.Parse()
	o.only = regexp.MustCompile(*only)
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	if o.work == "" {
		dir, err := os.MkdirTemp("", "varve-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		o.work = dir
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-interrupted
		killAll()
		os.Exit(1)
	}()
	defer killAll()
	r := &report{}
	for _, suite := range []func(options, *report) error{loadSuite, latencySuite, fetchSuite, startSuite, archiveSuite, failoverSuite, replicatedSuite, manySuite} {
		if err := suite(o, r); err != nil {
			r.print(os.Stderr)
			return err
		}
	}
	r.print(os.Stdout)
	return r.write(o.out)
}
