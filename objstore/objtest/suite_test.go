package objtest_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/budget"
	"github.com/varvelog/varve/objstore/fault"
	"github.com/varvelog/varve/objstore/file"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/objstore/metrics"
	"github.com/varvelog/varve/objstore/objtest"
	"github.com/varvelog/varve/objstore/open"
	"github.com/varvelog/varve/objstore/retry"
)

func TestMem(t *testing.T) {
	objtest.Run(t, func(*testing.T) objstore.Bucket { return mem.New(mem.Options{}) })
}

func TestFile(t *testing.T) {
	objtest.Run(t, func(t *testing.T) objstore.Bucket {
		b, err := file.New(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	})
}

func TestFaultWithoutRules(t *testing.T) {
	objtest.Run(t, func(*testing.T) objstore.Bucket { return fault.New(mem.New(mem.Options{}), fault.Options{}) })
}

func TestRetry(t *testing.T) {
	objtest.Run(t, func(*testing.T) objstore.Bucket { return retry.New(mem.New(mem.Options{}), retry.Options{}) })
}

func TestMetrics(t *testing.T) {
	objtest.Run(t, func(*testing.T) objstore.Bucket {
		return metrics.New(mem.New(mem.Options{}), prometheus.NewRegistry())
	})
}

func TestBudget(t *testing.T) {
	objtest.Run(t, func(*testing.T) objstore.Bucket {
		return budget.New(mem.New(mem.Options{}), budget.Options{Requests: 1, Bytes: 1000})
	})
}

// S3 runs the suite against one server, a prefix a test, through both clients and all decorators.
func TestS3(t *testing.T) {
	server := objtest.Start(t)
	var n atomic.Int64
	for _, client := range []string{"aws", "minio"} {
		t.Run(client, func(t *testing.T) {
			objtest.Run(t, func(t *testing.T) objstore.Bucket {
				b, err := open.Open(t.Context(), server.URL(fmt.Sprintf("p/%d", n.Add(1)), client), open.Options{Registerer: prometheus.NewRegistry()})
				if err != nil {
					t.Fatal(err)
				}
				return b
			})
		})
	}
}
