package cluster

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/e2e/proc"
)

func TestClusterVerbsShowWhatIsMissing(t *testing.T) {
	w := together(t)
	w.topic("shown", each...)
	show := func(verb string, wants ...string) {
		t.Helper()
		args := append([]string{"cluster"}, strings.Fields(verb)...)
		proc.Until(t, 30*time.Second, "varve cluster "+verb, func() error {
			r := w.verb(append(args, "--bootstrap", strings.Join(w.boot, ","))...)
			if r.Code != 0 {
				return fmt.Errorf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
			}
			for _, x := range wants {
				if !regexp.MustCompile(`(?m)` + x).MatchString(r.Stdout) {
					return fmt.Errorf("no %q in:\n%s", x, r.Stdout)
				}
			}
			return nil
		})
	}
	const header = `topic\s+partition\s+leader\s+epoch\s+replicas\s+isr\s+offline\n`
	show("status", `^brokers\s+3 alive$`, `^partitions\s+3$`, `^offline\s+0$`, `^under-replicated\s+0$`, `^not at preferred\s+0$`)
	show("brokers", `^1\s+127.0.0.1:\d+\s+rack-1\s+1\s+1\s+3\s+0`, `^2\s+127`, `^3\s+127`, `controller$`)
	show("partitions", `^shown\s+0\s+1\s+0\s+\[1 2 3\]\s+\[1 2 3\]\s+\[\]$`)
	show("partitions --under-replicated", `\A`+header+`\z`)
	w.stopOne(1)
	show("status", `^brokers\s+2 alive, \[1\] gone$`, `^offline\s+0$`, `^under-replicated\s+3$`, `^not at preferred\s+1$`)
	show("brokers", `^1\s+-\s+0\s+1\s+3\s+3\s+gone$`)
	show("partitions --under-replicated", `^shown\s+0\s+[23]\s+1\s+\[1 2 3\]\s+\[(2 3|3 2)\]\s+\[1\]$`, `^shown\s+2\s+3\s+0`)
	w.startOne(1)
	show("partitions --under-replicated", `\A`+header+`\z`)
	show("status", `^brokers\s+3 alive$`, `^not at preferred\s+1$`)
	if r := w.verb("cluster", "statu"); r.Code != 2 {
		t.Errorf("an unknown verb ends with %d, want 2", r.Code)
	}
}
