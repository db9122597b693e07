# varve: `make run` does the main job, `make test` passes the tests. Both need only Go, make and git.
GO      ?= go
export CGO_ENABLED := 0
BIN     := bin/varve
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
SEEDS   ?= 200

.PHONY: build run cluster test check race test-clients bench soak fuzz clean cover

build:
	@mkdir -p bin
	$(GO) build -ldflags '-s -w -X main.version=$(VERSION)' -o $(BIN) ./cmd/varve

# The main job, end to end, with a check after each step: produce, archive, evict, read back, restore to a moment between two writes.
run: build
	$(GO) run ./e2e/tour -varve $(BIN)

# Three brokers on this machine, data under ./varve-cluster; Ctrl-C stops them.
cluster: build
	deploy/local/cluster $(BIN) ./varve-cluster

test: build
	$(GO) test -timeout 30m ./...

# Vet, lint, race and invariants: before a push.
check:
	$(GO) test ./internal/lint
	CGO_ENABLED=1 $(GO) test -race -timeout 30m ./record/... ./localseg/... ./objstore/... ./manifest/... ./cache/... ./tier/... ./meta/... ./broker/... ./recovery/... ./sim/...

race: check

# Other languages' clients and Kafka's own tools; installs what it needs.
test-clients: build
	e2e/clients/run

bench: build
	bench/run

# Ten minutes without etcd, a hundred followers that join new leaders, then seeds without end, in the worlds of one broker and of a cluster; SIM_WORLD=broker or cluster chooses one.
# Ends with the first failures.
soak: build
	VARVE_OUTAGE=10m $(GO) test -count 1 -timeout 0 -run '^TestProduceAndFetchGoOnWithoutEtcd$$' ./e2e/cluster
	VARVE_JOINS=100 $(GO) test -count 1 -timeout 0 -run '^TestWhoJoinsANewLeadersISRHasAllThatWasAcknowledged$$' ./e2e/cluster
	SIM_SEEDS=0 $(GO) test -timeout 0 -run '^TestSeeds$$' ./sim

FUZZTIME ?= 60s
fuzz:
	@for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
	  done; done

cover:
	$(GO) test -coverprofile=cover.out ./... && $(GO) tool cover -func=cover.out | tail -1

clean:
	rm -rf bin varve-data varve-cluster .cache
