package memkv_test

import (
	"context"
	"testing"
	"time"

	"github.com/varvelog/varve/meta/kvtest"
	"github.com/varvelog/varve/meta/memkv"
)

func TestConformance(t *testing.T) {
	kv := memkv.New()
	client := kv.Client()
	kvtest.Run(t, &kvtest.Target{
		KV: client, Other: kv,
		Compact: func(_ context.Context, rev int64) error { kv.Compact(rev); return nil },
		Cut:     client.Disconnect, Heal: client.Connect,
		Kill:  func() { kv.Close() },
		Bound: time.Second,
	})
}
