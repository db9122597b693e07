package main

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func modeCreate(ctx context.Context) {
	t := time.Now()
	b0 := procCPU(pids())
	ensureTopic(ctx)
	emit(map[string]any{"mode": "create", "label": *fLabel, "topic": *fTopic, "partitions": *fParts, "rf": *fRF, "ms": time.Since(t).Milliseconds(),
		"broker_cpu_s": r3(procCPU(pids()) - b0), "broker_rss_mb": r3(procMem(pids(), "VmRSS")), "broker_peak_rss_mb": r3(procMem(pids(), "VmHWM"))})
}

func modeDelete(ctx context.Context) {
	cl, err := kgo.NewClient(base()...)
	die(err)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	_, err = adm.DeleteTopics(ctx, strings.Split(*fTopic, ",")...)
	die(err)
	emit(map[string]any{"mode": "delete", "topic": *fTopic})
}
