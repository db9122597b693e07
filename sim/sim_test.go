package sim

import (
	"bufio"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

// defaultSeeds keeps `make test` short; SIM_SEEDS says how many, 0 is until stopped, SIM_SEED is one.
const defaultSeeds = 200

func run(t *testing.T, seed uint64, o Options) (v *Violation) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { v = New(seed, o).Run() })
	return v
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
		check(t, seed, o)
		return
	}
	n, ok := env(t, "SIM_SEEDS")
	if !ok {
		n = defaultSeeds
	}
	const shards = 4
	for shard := range uint64(shards) {
		t.Run(strconv.FormatUint(shard, 10), func(t *testing.T) {
			t.Parallel()
			for seed := shard + 1; n == 0 || seed <= n; seed += shards {
				if v := run(t, seed, Options{}); v != nil {
					t.Error(v)
				}
			}
		})
	}
}

func check(t *testing.T, seed uint64, o Options) {
	t.Helper()
	if v := run(t, seed, o); v != nil {
		t.Fatal(v)
	}
}

// TestSeedsThatOnceFailed runs seeds/failed.txt: a seed in each line, then what it found.
func TestSeedsThatOnceFailed(t *testing.T) {
	f, err := os.Open("seeds/failed.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		seed, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		check(t, seed, Options{})
	}
}
