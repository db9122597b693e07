package main

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func rawReq(addr string, req kmsg.Request, corr int32) (kmsg.Response, error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("loadgen-ready"))
	if _, err = c.Write(f.AppendRequest(nil, req, corr)); err != nil {
		return nil, err
	}
	var l [4]byte
	if _, err = io.ReadFull(c, l[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(l[:]))
	if _, err = io.ReadFull(c, b); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	b = b[4:]
	if resp.IsFlexible() && req.Key() != 18 {
		b = b[1:]
	}
	return resp, resp.ReadFrom(b)
}

func modeReady() {
	since := time.Now()
	if *fSince > 0 {
		since = time.Unix(0, *fSince)
	}
	out := map[string]any{"mode": "ready", "label": *fLabel}
	addr := strings.Split(*fBrokers, ",")[0]
	dl := time.Now().Add(*fTimeout)
	stage := 0
	for time.Now().Before(dl) {
		if stage == 0 {
			if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
				c.Close()
				out["tcp_ms"] = time.Since(since).Milliseconds()
				stage = 1
			}
		}
		if stage == 1 {
			r := kmsg.NewPtrApiVersionsRequest()
			r.Version = 0
			if resp, err := rawReq(addr, r, 1); err == nil && resp.(*kmsg.ApiVersionsResponse).ErrorCode == 0 {
				out["apiversions_ms"] = time.Since(since).Milliseconds()
				out["apis"] = len(resp.(*kmsg.ApiVersionsResponse).ApiKeys)
				stage = 2
			}
		}
		if stage == 2 {
			r := kmsg.NewPtrMetadataRequest()
			r.Version = 9
			if *fExpect == 0 {
				r.Topics = []kmsg.MetadataRequestTopic{}
			} else {
				t := kmsg.NewMetadataRequestTopic()
				t.Topic = fTopic
				r.Topics = append(r.Topics, t)
			}
			if resp, err := rawReq(addr, r, 2); err == nil {
				m := resp.(*kmsg.MetadataResponse)
				led := 0
				for _, t := range m.Topics {
					for _, p := range t.Partitions {
						if p.Leader >= 0 && p.ErrorCode == 0 {
							led++
						}
					}
				}
				if len(m.Brokers) > 0 {
					if _, ok := out["metadata_ms"]; !ok {
						out["metadata_ms"] = time.Since(since).Milliseconds()
					}
				}
				if len(m.Brokers) >= *fNodes && led >= *fExpect {
					out["all_ms"] = time.Since(since).Milliseconds()
					out["brokers"] = len(m.Brokers)
					out["partitions_led"] = led
					if ps := pids(); len(ps) > 0 {
						out["broker_cpu_s"] = procCPU(ps)
						out["broker_rss_mb"] = r3(procMem(ps, "VmRSS"))
						out["broker_peak_rss_mb"] = r3(procMem(ps, "VmHWM"))
					}
					emit(out)
					return
				}
			}
		}
		time.Sleep(3 * time.Millisecond)
	}
	out["error"] = "timeout"
	emit(out)
	os.Exit(1)
}
