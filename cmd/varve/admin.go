package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// adminServer answers /livez, /readyz, /metrics and, for who looks into a slow broker, Go's /debug/pprof.
type adminServer struct {
	l     net.Listener // nil: none is wanted
	http  *http.Server
	ready atomic.Bool
}

func listenAdmin(address string, reg *prometheus.Registry) (*adminServer, error) {
	a := &adminServer{}
	if address == "" {
		return a, nil
	}
	var err error
	if a.l, err = net.Listen("tcp", address); err != nil {
		return nil, fmt.Errorf("admin.listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !a.ready.Load() {
			http.Error(w, "not serving", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	a.http = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	return a, nil
}

func (a *adminServer) setReady(yes bool) { a.ready.Store(yes) }

func (a *adminServer) addr() string {
	if a.l == nil {
		return ""
	}
	return a.l.Addr().String()
}

// Run serves until ctx ends.
func (a *adminServer) Run(ctx context.Context) error {
	if a.l == nil {
		<-ctx.Done()
		return nil
	}
	stop := context.AfterFunc(ctx, func() { a.http.Close() })
	defer stop()
	if err := a.http.Serve(a.l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// registerProcess adds what every process should tell: its own memory, descriptors, CPU, and the Go runtime's.
func registerProcess(reg *prometheus.Registry) {
	reg.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "varve_build_info", Help: "1, with the version as a label", ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	reg.MustRegister(info)
}
