package sim

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// planted is a bug and the world in which it is sought.
type planted struct {
	world, name string
	o           Options
}

func allPlanted() (out []planted) {
	for _, m := range Mutants() {
		out = append(out, planted{"broker", m.Name, Options{Mutant: m}})
	}
	for _, m := range ClusterMutants() {
		out = append(out, planted{"cluster", m.Name, Options{Cluster: m}})
	}
	return out
}

// Each planted bug is found within some seeds, or the checkers do not check. Each is sought in a process of its own, since an
// assertion of the broker may find it first, by a panic.
func TestPlantedBugsAreFound(t *testing.T) {
	for i, m := range allPlanted() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestOnePlantedBug$", "-test.timeout=5m")
			cmd.Env = append(os.Environ(), "SIM_MUTANT="+strconv.Itoa(i))
			out, err := cmd.CombinedOutput()
			why := regexp.MustCompile(`seed \d+: broken rule: .*|panic: invariant broken.*`).Find(out)
			if err == nil || why == nil {
				t.Fatalf("not found in %d seeds: %v\n%s", mutantSeeds, err, out)
			}
			t.Logf("found: %s", why)
		})
	}
}

// mutantSeeds is how far a planted bug is sought. The first run that finds it ends the search: of most that is one of the first three.
const mutantSeeds = 200

// TestOnePlantedBug is the process that TestPlantedBugsAreFound starts: it fails when it finds the bug.
func TestOnePlantedBug(t *testing.T) {
	i, ok := env(t, "SIM_MUTANT")
	if !ok {
		return
	}
	m := allPlanted()[i]
	for seed := uint64(1); seed <= mutantSeeds; seed++ {
		check(t, m.world, seed, m.o)
	}
}
