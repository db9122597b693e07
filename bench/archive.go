package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/objtest"
	"github.com/varvelog/varve/objstore/open"
)

// archiveSuite: sequential reading of what is in the archive alone, beside plain GETs of the same objects from the same S3 server.
func archiveSuite(o options, r *report) error {
	const name = "fetch/archived"
	if !o.only.MatchString(name) {
		return nil
	}
	dir := filepath.Join(o.work, "archived")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ctx := context.Background()
	s3, err := objtest.RunS3(ctx, dir)
	if err != nil {
		return err
	}
	defer s3.Stop()
	os.Setenv("AWS_ACCESS_KEY_ID", s3.AccessKey)
	os.Setenv("AWS_SECRET_ACCESS_KEY", s3.SecretKey)
	url := fmt.Sprintf("s3://%s/bench?endpoint=%s&use_path_style=true&region=us-east-1", s3.Bucket, s3.Endpoint)
	b, err := launch(varvePeer(o, []string{"archive.url=" + url, "archive.max.lag.ms=1000", "log.retention.check.interval.ms=500"}), filepath.Join(dir, "varve"))
	if err != nil {
		return err
	}
	defer b.stop(syscall.SIGTERM)
	if _, err := ready(o, b); err != nil {
		return err
	}
	if _, err := load(o, b, "-mode", "produce", "-topic", "a", "-partitions", "1", "-batch-bytes", "262144", "-records", "1048576", "-duration", "120s",
		"-topic-config", "segment.bytes=67108864,local.retention.bytes=1048576"); err != nil {
		return err
	}
	bucket, err := open.Open(ctx, url, open.Options{})
	if err != nil {
		return err
	}
	keys, err := settled(ctx, bucket)
	if err != nil {
		return err
	}
	for run := range o.runs {
		raw, err := rawGet(ctx, bucket, keys)
		if err != nil {
			return err
		}
		r.add(name, "raw GET", run, map[string]float64{"mb_per_s": raw})
		m := map[string]float64{}
		// A GET takes bytes and so does drain; a Kafka client, which decodes them, is measured beside.
		for mode, metric := range map[string]string{"drain": "mb_per_s", "consume": "client_mb_per_s"} {
			if b, err = afresh(o, b); err != nil {
				return err
			}
			res, err := load(o, b, "-mode", mode, "-topic", "a", "-fetch-max-partition-bytes", "16777216")
			if err != nil {
				return err
			}
			m[metric] = res.num("mb_per_s")
			if mode == "drain" {
				m["broker_cpu_s_per_gb"] = res.num("broker_cpu_s_per_gb")
			}
		}
		r.add(name, "varve", run, m)
	}
	return nil
}

// afresh restarts b: nothing is in its caches.
func afresh(o options, b *broker) (*broker, error) {
	if err := b.stop(syscall.SIGTERM); err != nil {
		return nil, err
	}
	next, err := launch(b.peer, b.dir)
	if err != nil {
		return nil, err
	}
	_, err = ready(o, next)
	return next, err
}

// settled waits until the set of rolled segment objects no longer changes, and returns their keys in order.
func settled(ctx context.Context, b objstore.Bucket) ([]string, error) {
	var before []string
	for range 60 {
		var keys []string
		for info, err := range b.List(ctx, "t/", "") {
			if err != nil {
				return nil, err
			}
			if strings.Contains(info.Key, "/s/") && info.Size > 32<<20 {
				keys = append(keys, info.Key)
			}
		}
		sort.Strings(keys)
		if len(keys) > 0 && len(keys) == len(before) {
			return keys, nil
		}
		before = keys
		time.Sleep(2 * time.Second)
	}
	return nil, fmt.Errorf("segment objects do not settle")
}

// rawGet reads the objects one after another and throws the bytes away, MB/s.
func rawGet(ctx context.Context, b objstore.Bucket, keys []string) (float64, error) {
	var n int64
	buf := make([]byte, 1<<20)
	start := time.Now()
	for _, k := range keys {
		rc, err := b.Get(ctx, k, 0, -1)
		if err != nil {
			return 0, err
		}
		m, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{rc}, buf)
		rc.Close()
		if err != nil {
			return 0, err
		}
		n += m
	}
	return float64(n) / 1e6 / time.Since(start).Seconds(), nil
}
