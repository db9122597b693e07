package proc

import "time"

// T is what Until needs of a test.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Until polls until f returns nil. When the limit has passed first, f's last error is the test's, which ends. What is waited for says
// what. A limit is there to end a test that would hang, not to measure: machines of a test may be busy.
func Until(t T, limit time.Duration, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s not yet: %s: %v", limit, what, err)
		}
		Pause(pollEvery)
	}
}

const pollEvery = 20 * time.Millisecond

// Pause is the time between two looks at another process, or that a fault lasts.
func Pause(d time.Duration) { <-time.After(d) }
