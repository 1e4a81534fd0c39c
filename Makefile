# Muster's own commands. `make` alone lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help

BIN := bin
SANDBOX := $(BIN)/muster-sandbox
KUEUE := $(BIN)/kueue
KUEUECTL := $(BIN)/kueuectl
RUNNER := $(BIN)/kueue-performance
TOOL := go tool -modfile=go.tools.mod

LDFLAGS := -s -w

# The programs that tests run, those that could be built.
PROGRAMS = MUSTER_SANDBOX_BIN=$(abspath $(SANDBOX)) MUSTER_BIN=$(abspath $(BIN))/muster \
	MUSTER_KUEUE_BIN=$$(ls $(abspath $(KUEUE)) 2>/dev/null) MUSTER_KUEUECTL_BIN=$$(ls $(abspath $(KUEUECTL)) 2>/dev/null) \
	MUSTER_RUNNER_BIN=$$(ls $(abspath $(RUNNER))/runner 2>/dev/null) MUSTER_KUEUE_CORE_BIN=$$(ls $(abspath $(RUNNER))/minimalkueue 2>/dev/null)

.PHONY: help
help: ## List the commands.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build muster and muster-sandbox into bin/. The first time takes minutes: Kubernetes is compiled.
	@mkdir -p $(BIN)
	@[ -e $(SANDBOX) ] || echo "The first build compiles Kubernetes: about 6 minutes on 2 cores, seconds from then on."
	go build -o $(BIN)/ -ldflags '$(LDFLAGS)' ./cmd/...

.PHONY: kueue
kueue: ## Build the stock Kueue and kueuectl that test/kueue runs, unmodified. The first time takes minutes.
	@mkdir -p $(BIN)
	go mod download sigs.k8s.io/kueue
	go -C "$$(go list -m -f '{{.Dir}}' sigs.k8s.io/kueue)" build -o $(abspath $(BIN))/ -ldflags '$(LDFLAGS)' ./cmd/kueue ./cmd/kueuectl

# Its core bounds its clients to 50 requests a second, which would be all that is measured.
.PHONY: runner
runner: ## Build Kueue's own performance test, whose clients may send 1,000 requests a second. The first time takes minutes.
	go mod download sigs.k8s.io/kueue
	rm -rf $(RUNNER) && mkdir -p $(RUNNER)/module
	cp -R "$$(go list -m -f '{{.Dir}}' sigs.k8s.io/kueue)"/{go.mod,go.sum,apis,client-go,pkg,test} $(RUNNER)/module && chmod -R u+w $(RUNNER)/module
	sed -i.orig -E 's/(kubeConfig\.(QPS|Burst)) = .*/\1 = 1000/' $(RUNNER)/module/test/performance/scheduler/minimalkueue/main.go
	go -C $(RUNNER)/module build -o .. -ldflags '$(LDFLAGS)' ./test/performance/scheduler/runner ./test/performance/scheduler/minimalkueue
	rm -rf $(RUNNER)/module

.PHONY: demo
demo: build ## Tell three stories on a real cluster on this machine: a minute, nothing left behind. ARGS=--keep leaves it up.
	$(SANDBOX) demo $(ARGS)

# The packages whose tests run clusters.
CLUSTERS := /test/(e2e|kueue|bench|page|monitoring)|/kwok/(cluster|scenario/runner)|/cmd/(kubectl-muster|muster/migration)

# Those of them that hold clusters to the bounds of the promises, or load them.
ALONE := /test/(e2e|kueue|bench)|/kwok/scenario/runner

# Two packages at a time, and one where two would slow each other down beyond the bounds that
# the promises have. With -short, tests of many random
# cases take few of them: all are in simulate, and those on clusters in e2e-all.
.PHONY: test
test: build ## Run all tests, those on a real cluster included.
	@$(MAKE) --no-print-directory kueue || { rm -f $(KUEUE) $(KUEUECTL); echo "SKIP: stock Kueue could not be built, so what needs it is left out"; }
	@export $(PROGRAMS); status=0; \
	go test -p 2 -short -timeout 60m $(ARGS) $$(go list ./... | grep -Ev '$(CLUSTERS)') || status=1; \
	go test -p 2 -short -timeout 60m $(ARGS) $$(go list ./... | grep -E '$(CLUSTERS)' | grep -Ev '$(ALONE)') || status=1; \
	go test -p 1 -short -timeout 60m $(ARGS) $$(go list ./... | grep -E '$(ALONE)') || status=1; exit $$status

.PHONY: unit
unit: ## Run the tests that need no cluster.
	go test -short $(ARGS) $$(go list ./... | grep -v -e /test/e2e -e /test/kueue)

.PHONY: simulate
simulate: ## Play 10,000 seeded stories of the provisioner, 100,000 interleavings of the queues, and all random cases of other tests.
	go test ./test/simulation -run TestRandomStories -timeout 120m -runs 10000 $(ARGS)
	go test ./queueing/controller/loop -run TestInterleavings -timeout 120m -interleavings 100000 $(ARGS)
	go test -timeout 60m ./cloudprovider/... ./provisioning/... ./queueing/... ./test/bench/worth

.PHONY: e2e-all
e2e-all: build ## Run all of test/e2e in full: ten minutes of storm, 20 changes of leader, 12 deaths a story, 1,000 races.
	MUSTER_SANDBOX_BIN=$(abspath $(SANDBOX)) go test ./test/e2e -timeout 180m \
		-storm 10m -leader-rounds 20 -kills 12 -races 1000 -pairs 2000 -garbage 200 $(ARGS)

.PHONY: soak
soak: build ## Let everything go wrong for an hour while gangs come and go, change leaders 100 times, kill muster 12 times a story; make test does a minute, 4 and 4.
	MUSTER_SANDBOX_BIN=$(abspath $(SANDBOX)) go test ./test/e2e -run 'InAStorm|LosesItsLease|MusterIsAway/killed' -timeout 180m -storm 1h -leader-rounds 100 -kills 12 $(ARGS)

.PHONY: bench
bench: build kueue runner ## Measure plans, requests and admissions, beside a stock Kueue (an hour); compare two runs with benchstat.
	$(PROGRAMS) go test -run '^$$' -bench . -benchmem -timeout 120m $(ARGS) ./test/bench/...

.PHONY: lint
lint: ## Run the linters of .golangci.yml.
	$(TOOL) golangci-lint run $(ARGS) ./...

.PHONY: generate
generate: ## Write again what is generated: deep copies, CRDs, dashboards, and the permissions that clouds must give.
	go run ./deploy/generate
	go run ./deploy/generate/clouds
	go run ./deploy/monitoring/generate

.PHONY: verify
verify: lint generate ## All that a commit needs beside the tests: linters, generated files, go.mod; fails on a dirty tree.
	go mod tidy
	@git diff --exit-code -- . || { echo "Generated files or go.mod were out of date: they have been written again, commit them."; exit 1; }

.PHONY: clean
clean: ## Remove what was built.
	rm -rf $(BIN)
