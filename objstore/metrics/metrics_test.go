package metrics_test

import (
	"io"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/objstore/metrics"
)

func TestRequestsAreCountedByOutcomeAndBytes(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := fault.New(mem.New(mem.Options{}), fault.Options{Rules: []fault.Rule{
		{Op: fault.Delete, Effect: fault.Throttle, Count: 1}, {Op: fault.Get, From: 2, Effect: fault.Truncate, At: 3},
	}})
	b := metrics.New(f, reg)
	body := objstore.BytesBody([]byte("0123456789"))
	_, _ = b.Put(t.Context(), "k", body, objstore.Cond{IfNoneMatch: true})
	_, _ = b.Put(t.Context(), "k", body, objstore.Cond{IfNoneMatch: true})
	for range 2 {
		rc, err := b.Get(t.Context(), "k", 2, 5)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadAll(rc)
		rc.Close()
	}
	_, _ = b.Head(t.Context(), "none")
	_ = b.Delete(t.Context(), "k")
	for range b.List(t.Context(), "", "") {
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		`objstore_bytes_total{op="get"} 8`,
		`objstore_bytes_total{op="put"} 10`,
		`objstore_requests_in_flight{op="get"} 0`,
		`objstore_requests_in_flight{op="list"} 0`,
		`objstore_requests_in_flight{op="put"} 0`,
		`objstore_requests_total{op="delete",outcome="throttled"} 1`,
		`objstore_requests_total{op="get",outcome="ok"} 1`,
		`objstore_requests_total{op="get",outcome="unavailable"} 1`,
		`objstore_requests_total{op="head",outcome="not_found"} 1`,
		`objstore_requests_total{op="list",outcome="ok"} 1`,
		`objstore_requests_total{op="put",outcome="exists"} 1`,
		`objstore_requests_total{op="put",outcome="ok"} 1`,
	} {
		if !strings.Contains(text.String(), want+"\n") {
			t.Errorf("no %s in\n%s", want, text.String())
		}
	}
}
