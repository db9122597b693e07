package memkv

// Call is one request of a client, as a fault hook sees it.
type Call struct {
	N    int64    // 1 for the client's first request since the hook was set
	Kind string   // "range", "get", "txn", "grant", "renew", "revoke"
	Keys []string // of a txn's ops, or the key or prefix asked for
}

// Outcome is what a fault hook wants to happen.
type Outcome uint8

const (
	OK      Outcome = iota
	Refuse          // ErrUnavailable, nothing was applied
	Unknown         // ErrUnavailable, but it was applied
)

// Hook sets the fault hook of this client, nil for none. It is called without locks, and may be called concurrently.
func (k *KV) Hook(f func(Call) Outcome) {
	if f == nil {
		k.hook.Store(nil)
		return
	}
	k.calls.Store(0)
	k.hook.Store(&f)
}

// FailTxn lets the n-th transaction from now (1 is the next) have the outcome, once.
func (k *KV) FailTxn(n int64, o Outcome) {
	k.txns.Store(0)
	k.Hook(func(c Call) Outcome {
		if c.Kind == "txn" && k.txns.Add(1) == n {
			return o
		}
		return OK
	})
}

// Disconnect makes every request of this client fail with ErrUnavailable, and its watches stall, until Connect.
// Its leases are not renewed meanwhile.
func (k *KV) Disconnect() { k.setDown(true) }

// Connect ends Disconnect: watches go on where they were, if the history still has it.
func (k *KV) Connect() { k.setDown(false) }

func (k *KV) outcome(kind string, keys ...string) Outcome {
	if f := k.hook.Load(); f != nil {
		return (*f)(Call{N: k.calls.Add(1), Kind: kind, Keys: keys})
	}
	return OK
}
