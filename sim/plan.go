package sim

import (
	"math/rand/v2"
	"time"
)

// plan is what a seed draws before a run begins.
type plan struct {
	length    time.Duration // of workload and nemesis
	producers int
	consumers int
	crashes   bool // the nemesis kills
	machines  bool // and takes the machine, too
	topics    bool // topics are deleted and brought back

	segmentBytes    int64
	deleteDelayMs   int64
	localMax        int64
	retentionCheck  time.Duration
	sweep           time.Duration
	supersededGrace time.Duration
	maxLagMs        int64
	windowMs        int64
	think           time.Duration // longest pause of a client between two requests
}

func draw(rng *rand.Rand) plan {
	pick := func(ms ...int64) int64 { return ms[rng.IntN(len(ms))] }
	p := plan{
		length:    time.Duration(60+rng.IntN(120)) * time.Second,
		producers: 1 + rng.IntN(3), consumers: 1 + rng.IntN(2),
		crashes: rng.IntN(5) > 0, machines: rng.IntN(2) == 0, topics: rng.IntN(3) == 0,
		segmentBytes:  pick(6<<10, 8<<10, 16<<10, 64<<10),
		deleteDelayMs: pick(1, 1000, 20_000), localMax: pick(0, 0, 64<<10),
		retentionCheck: time.Duration(pick(500, 2000, 10_000)) * time.Millisecond,
		sweep:          time.Duration(pick(2000, 10_000)) * time.Millisecond, supersededGrace: time.Duration(pick(1000, 30_000)) * time.Millisecond,
		maxLagMs: pick(500, 2000, 10_000), windowMs: pick(5000, 30_000, 3_600_000, 3_600_000),
		think: time.Duration(pick(400, 1500)) * time.Millisecond,
	}
	return p
}
