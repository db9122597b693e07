package sim

import (
	"bufio"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// defaultSeeds keeps `make test` short; SIM_SEEDS says how many, 0 is until stopped, SIM_SEED is one.
const defaultSeeds = 200

// worlds are the kinds of runs; SIM_WORLD chooses one.
var worlds = map[string]func(seed uint64, o Options) *Violation{
	"broker":  func(seed uint64, o Options) *Violation { return New(seed, o).Run() },
	"cluster": func(seed uint64, o Options) *Violation { return NewCluster(seed, o).Run() },
}

func run(t *testing.T, world string, seed uint64, o Options) (v *Violation) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { v = worlds[world](seed, o) })
	return v
}

// chosen are the worlds that SIM_WORLD asks for.
func chosen(t *testing.T) []string {
	t.Helper()
	w := os.Getenv("SIM_WORLD")
	if w == "" {
		return slices.Sorted(maps.Keys(worlds))
	}
	if worlds[w] == nil {
		t.Fatalf("SIM_WORLD: no world %q", w)
	}
	return []string{w}
}

func env(t *testing.T, key string) (uint64, bool) {
	t.Helper()
	s := os.Getenv(key)
	if s == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	return n, true
}

func TestSeeds(t *testing.T) {
	if seed, ok := env(t, "SIM_SEED"); ok {
		o := Options{}
		if os.Getenv("SIM_LOG") != "" {
			o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
		}
		for _, w := range chosen(t) {
			check(t, w, seed, o)
		}
		return
	}
	n, ok := env(t, "SIM_SEEDS")
	if !ok {
		n = defaultSeeds
	}
	const shards = 4
	var broken atomic.Bool
	for shard := range uint64(shards) {
		t.Run(strconv.FormatUint(shard, 10), func(t *testing.T) {
			t.Parallel()
			for seed := shard + 1; seed <= n || n == 0 && !broken.Load(); seed += shards {
				for _, w := range chosen(t) {
					if v := run(t, w, seed, Options{}); v != nil {
						t.Error(v)
						broken.Store(true) // what goes on for ever ends here
					}
				}
			}
		})
	}
}

func check(t *testing.T, world string, seed uint64, o Options) {
	t.Helper()
	if v := run(t, world, seed, o); v != nil {
		t.Fatal(v)
	}
}

// TestSeedsThatOnceFailed runs seeds/failed.txt: a world and a seed in each line, then what it found.
func TestSeedsThatOnceFailed(t *testing.T) {
	f, err := os.Open("seeds/failed.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		seed, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		check(t, fields[0], seed, Options{})
	}
}
