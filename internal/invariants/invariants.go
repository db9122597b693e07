// Package invariants asserts what only a fault of ours can break.
package invariants

import "fmt"

// Assert panics with the message if ok is false. Never for input, disk or network.
func Assert(ok bool, format string, args ...any) {
	if !ok {
		panic("invariant broken: " + fmt.Sprintf(format, args...))
	}
}
