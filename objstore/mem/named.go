package mem

import "sync"

var named struct {
	mu      sync.Mutex
	buckets map[string]*Bucket // guarded by mu
}

// Named returns the bucket of that name in this process, made empty at its first use: what mem://name opens.
func Named(name string) *Bucket {
	named.mu.Lock()
	defer named.mu.Unlock()
	b := named.buckets[name]
	if b == nil {
		if named.buckets == nil {
			named.buckets = make(map[string]*Bucket)
		}
		b = New(Options{})
		named.buckets[name] = b
	}
	return b
}
