# Muster's own commands. `make` alone lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help

BIN := bin
SANDBOX := $(BIN)/muster-sandbox
KUEUE := $(BIN)/kueue
KUEUECTL := $(BIN)/kueuectl
RUNNER := $(BIN)/kueue-performance
TWIN := $(BIN)/kueue-topology
TOOL := go tool -modfile=go.tools.mod

LDFLAGS := -s -w
# gRPC's traces look for methods by name, so that the linker would keep all of all types, and the program would be twice as large.
# Kubernetes, most of muster-sandbox, does that in any case.
TAGS := -tags grpcnotrace

# The programs that tests run, those that could be built.
PROGRAMS = MUSTER_SANDBOX_BIN=$(abspath $(SANDBOX)) MUSTER_BIN=$(abspath $(BIN))/muster MUSTER_PLUGIN_BIN=$(abspath $(BIN))/kubectl-muster \
	MUSTER_KUEUE_BIN=$$(ls $(abspath $(KUEUE)) 2>/dev/null) MUSTER_KUEUECTL_BIN=$$(ls $(abspath $(KUEUECTL)) 2>/dev/null) \
	MUSTER_TOPOLOGY_TWIN_BIN=$$(ls $(abspath $(TWIN))/topology-twin 2>/dev/null) \
	MUSTER_PODSETS_TWIN_BIN=$$(ls $(abspath $(TWIN))/podsets-twin 2>/dev/null) \
	MUSTER_HELM_BIN=$$(ls $(abspath $(BIN))/helm 2>/dev/null) MUSTER_RUNNER_BIN=$$(ls $(abspath $(RUNNER))/runner 2>/dev/null) MUSTER_KUEUE_CORE_BIN=$$(ls $(abspath $(RUNNER))/minimalkueue 2>/dev/null)

.PHONY: help
help: ## List the commands.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build muster and muster-sandbox into bin/. The first time takes minutes: Kubernetes is compiled.
	@mkdir -p $(BIN)
	@[ -e $(SANDBOX) ] || echo "The first build compiles Kubernetes: about 6 minutes on 2 cores, seconds from then on."
	go build -o $(BIN)/ -ldflags '$(LDFLAGS)' ./cmd/muster-sandbox ./cmd/kubectl-muster
	go build -o $(BIN)/ -ldflags '$(LDFLAGS)' $(TAGS) ./cmd/muster ./cmd/muster-dashboard

.PHONY: kueue
kueue: ## Build the stock Kueue and kueuectl that test/kueue runs, unmodified. The first time takes minutes.
	@mkdir -p $(BIN)
	go mod download sigs.k8s.io/kueue
	go -C "$$(go list -m -f '{{.Dir}}' sigs.k8s.io/kueue)" build -o $(abspath $(BIN))/ -ldflags '$(LDFLAGS)' ./cmd/kueue ./cmd/kueuectl

# Its placement is not exported, so the program that asks it is built in a copy of its module. Its
# integrations are, so theirs only requires the module, with the versions that Kueue has.
.PHONY: twin
twin: $(TWIN)/topology-twin $(TWIN)/podsets-twin ## Build the programs that answer as Kueue's topology-aware scheduling and its integrations do, for test/kueue.

$(TWIN)/topology-twin: go.sum $(shell find test/kueue/topology/testdata -name '*.go')
	go mod download sigs.k8s.io/kueue
	rm -rf $(TWIN)/topology && mkdir -p $(TWIN)/topology/cmd
	cp -R "$$(go list -m -f '{{.Dir}}' sigs.k8s.io/kueue)"/{go.mod,go.sum,apis,client-go,pkg} $(TWIN)/topology && chmod -R u+w $(TWIN)/topology
	cp test/kueue/topology/testdata/tas_twin.go $(TWIN)/topology/pkg/cache/scheduler/
	cp -R test/kueue/topology/testdata/twin $(TWIN)/topology/cmd/
	go -C $(TWIN)/topology build -o ../topology-twin -ldflags '$(LDFLAGS)' ./cmd/twin
	rm -rf $(TWIN)/topology

$(TWIN)/podsets-twin: go.sum $(shell find test/kueue/podsets/testdata -name '*.go')
	go mod download sigs.k8s.io/kueue
	rm -rf $(TWIN)/podsets && mkdir -p $(TWIN)/podsets
	cp test/kueue/podsets/testdata/twin/*.go $(TWIN)/podsets
	sed 's/^module .*/module twin/' "$$(go list -m -f '{{.Dir}}' sigs.k8s.io/kueue)"/go.mod > $(TWIN)/podsets/go.mod
	{ cat "$$(go list -m -f '{{.Dir}}' sigs.k8s.io/kueue)"/go.sum; grep '^sigs.k8s.io/kueue ' go.sum; } > $(TWIN)/podsets/go.sum
	go -C $(TWIN)/podsets mod edit -require "$$(go list -m sigs.k8s.io/kueue | tr ' ' @)"
	go -C $(TWIN)/podsets build -o ../podsets-twin -ldflags '$(LDFLAGS)' .
	rm -rf $(TWIN)/podsets

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

# What is released bears this version: a tag, or the commit after one.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Charts need a semantic version.
CHART_VERSION = $(patsubst v%,%,$(if $(filter v%,$(VERSION)),$(VERSION),v0.0.0-g$(VERSION)))
REGISTRY ?= ghcr.io/muster-dev
PLATFORMS ?= linux/amd64,linux/arm64
DIST ?= dist
RELEASE := go tool -modfile=go.release.mod
STATIC = -trimpath -ldflags '$(LDFLAGS) -X github.com/muster-dev/muster/cmd/version.release=$(VERSION)'

$(BIN)/helm: go.release.sum
	@mkdir -p $(BIN)
	go build -modfile=go.release.mod -o $@ -ldflags '$(LDFLAGS)' helm.sh/helm/v3/cmd/helm

.PHONY: tools
tools: $(BIN)/helm ## Build Helm, ko and crane into bin/, which the charts and the image are made and tested with. The first time takes minutes.
	go build -modfile=go.release.mod -o $(BIN)/ -ldflags '$(LDFLAGS)' github.com/google/ko github.com/google/go-containerregistry/cmd/crane

.PHONY: image
image: ## Build the images for PLATFORMS and push them to REGISTRY, with an SBOM each. KO_DEFAULTBASEIMAGE replaces the base.
	VERSION=$(VERSION) KO_DOCKER_REPO=$(REGISTRY) $(RELEASE) ko build --base-import-paths --platform $(PLATFORMS) --tags $(VERSION) \
		--sbom spdx $(ARGS) ./cmd/muster ./cmd/muster-dashboard

.PHONY: chart
chart: ## Package the charts into dist/.
	@mkdir -p $(DIST) && rm -f $(DIST)/*.tgz
	$(RELEASE) helm package deploy/charts/muster deploy/charts/muster-crds --destination $(DIST) \
		--version $(CHART_VERSION) --app-version $(VERSION)

# The platforms of krew's manifest, as os-arch.
PLUGIN_PLATFORMS ?= linux-amd64 linux-arm64 darwin-amd64 darwin-arm64 windows-amd64

.PHONY: binaries
binaries:
	@rm -rf $(DIST)/plugin $(DIST)/*.tar.gz $(DIST)/muster-linux-* && mkdir -p $(DIST)/plugin
	@set -e; for p in $(PLUGIN_PLATFORMS); do os=$${p%-*} arch=$${p#*-} exe=; [ $$os != windows ] || exe=.exe; \
		echo kubectl-muster for $$p; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go build $(STATIC) -o $(DIST)/plugin/kubectl-muster$$exe ./cmd/kubectl-muster; \
		cp LICENSE NOTICE cmd/kubectl-muster/krew/kubectl_complete-muster $(DIST)/plugin/; \
		tar -C $(DIST)/plugin -czf $(DIST)/kubectl-muster-$$p.tar.gz .; rm $(DIST)/plugin/kubectl-muster$$exe; done
	@rm -r $(DIST)/plugin
	@set -e; for arch in amd64 arm64; do echo muster for linux-$$arch; \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch go build $(STATIC) $(TAGS) -o $(DIST)/muster-linux-$$arch ./cmd/muster; done

# A registry of this machine has no certificate.
PLAIN_HTTP = $(if $(filter 127.0.0.1:%,$(REGISTRY)),--plain-http)

.PHONY: release
release: binaries chart image ## Make all of a release of VERSION, a tag: binaries, charts, images, checksums, krew's manifest.
	for c in $(DIST)/*.tgz; do $(RELEASE) helm push $$c oci://$(REGISTRY)/charts $(PLAIN_HTTP) || exit 1; done
	cd $(DIST) && sha256sum *.tgz *.tar.gz muster-linux-* > checksums.txt
	go run ./deploy/generate/krew $(VERSION) $(DIST)/checksums.txt < cmd/kubectl-muster/krew/muster.yaml > $(DIST)/muster.yaml

# Its programs, and how they are named to the tests.
INSTALL_PROGRAMS = MUSTER_KO_BIN=$(abspath $(BIN))/ko MUSTER_CRANE_BIN=$(abspath $(BIN))/crane

# The tests of what a hostile tenant tries: they run on what the charts install, too.
ATTACKS := TestTenants|TestPodsThat|TestGatedPods|TestBookedNodes|TestASquatter|TestMusterChangesNoMore|TestOnlyThoseWithTheRight|TestGarbage

.PHONY: install-test
install-test: build tools kueue ## Test the charts with Helm on a sandbox, attacks on what they install, the image, taking Muster out, and the way from Kueue and back.
	$(PROGRAMS) $(INSTALL_PROGRAMS) go test -timeout 30m ./test/install $(ARGS)
	$(PROGRAMS) $(INSTALL_PROGRAMS) go test -short ./test/e2e -chart -run '$(ATTACKS)'

# What starts clusters, the longest first, beside test/e2e.
BESIDE := ./test/multikueue ./kwok/scenario/runner ./test/kueue/... ./test/page ./test/bench ./test/install ./kwok/cluster \
	./test/clusters ./test/invariants ./cmd/kubectl-muster/...
CLUSTERS := ./test/e2e $(BESIDE)

# Seeded stories of the whole: the provisioner's, a bad day of the clouds, and random worlds beside the scheduler's own plugins.
SIMULATED := ./test/simulation ./test/brownouts ./test/oracle

# What make test plays a part of the random cases of, which are all played by make test-more.
IN_FULL := ./queueing ./queueing/scheduler ./queueing/lifecycle ./queueing/jobs ./queueing/forecast ./queueing/controller/loop ./provisioning/planner

# Tests whose names begin with this are the stories of make test.
STORIES := ^TestStory

# Each failed test keeps what explains it in a folder of its own here.
FAILED := $(abspath $(DIST))/failed

# Vetting is the linter's. With -short, tests of many random cases take few of them: all are in simulate, and those on clusters in
# e2e-all. Control planes of small clusters spend a seventh of their CPU on collecting garbage by Go's default.
TEST = $(PROGRAMS) MUSTER_FAILED_DIR=$(FAILED) GOGC=$${GOGC:-400} go test -vet=off -short -timeout 60m

# What ends the output of a failure: where that is kept which explains it.
KEPT = { [ ! -d $(FAILED) ] || find $(FAILED) -mindepth 2 -maxdepth 2 -type d -printf 'Kept of a failed test: %p\n' >&2; exit 1; }

# The packages that have a test of the name after -run in ARGS, so that nothing else is built.
RUN = $(shell sed -nE "s/.*-run[ =]'?\"?([^ '\"]+).*/\1/p" <<< "$(subst ",,$(ARGS))")
RUN_IN = $(shell grep -rhlE --include='*_test.go' "^func ($$(sed -E 's:/.*::; s:^\^?(.*[^$$])\$$?$$:Test\1|\1:' <<< '$(RUN)'))" . | xargs -rn1 dirname | sort -u)

# Those of them that run programs, which are built then.
RUN_CLUSTERS = $(filter $(patsubst %/...,%%,$(CLUSTERS)),$(RUN_IN))

.PHONY: test
test: $(if $(RUN),$(if $(RUN_CLUSTERS),build $(BIN)/helm),build $(BIN)/helm) ## Run the packages' own tests, and the stories of each part on real clusters. ARGS='-run TestName' runs that test alone.
	@rm -rf $(FAILED)
ifneq ($(RUN),)
	@[ -n "$(RUN_IN)" ] || { echo "No test has a name that begins as $(RUN) does"; exit 1; }
	@$(TEST) $(ARGS) $(RUN_IN) || $(KEPT)
else
	@status=0; \
	$(TEST) $(ARGS) -p 1 -run '$(STORIES)' ./test/e2e -chart || status=1; \
	$(TEST) $(ARGS) -p 1 -run '$(STORIES)' ./test/clusters || status=1; \
	$(TEST) $(ARGS) $$(go list ./... | grep -vxF -e "$$(go list $(CLUSTERS) $(SIMULATED))") || status=1; \
	[ $$status = 0 ] || $(KEPT)
endif

# The bounds of the promises hold for a cluster that has a machine of two processors for itself. Those of test/e2e are as many as two
# processors serve, so no other package runs beside it. A stock Kueue that cannot be built fails CI; elsewhere the last line says what
# is left out.
.PHONY: test-more
test-more: build $(BIN)/helm ## Run the tests on real clusters, beside a stock Kueue, too, and simulations of the whole: half an hour.
	@rm -rf $(FAILED)
	@left=; $(MAKE) --no-print-directory kueue twin || { \
		rm -rf $(KUEUE) $(KUEUECTL) $(TWIN); left="SKIP: stock Kueue could not be built, so what needs it was left out"; [ -z "$$CI" ] || exit 1; }; \
	status=0; $(TEST) $(ARGS) -skip '$(STORIES)' ./test/e2e || status=1; \
	$(TEST) $(ARGS) -p 2 -skip '$(STORIES)' $$(go list $(BESIDE) $(SIMULATED)) || status=1; \
	$(TEST) $(ARGS) -short=false $(IN_FULL) || status=1; \
	echo "$$left"; [ $$status = 0 ] || $(KEPT)

.PHONY: test-slowly
test-slowly: ## Run make test with half of the processors' time, as CI does: PERCENT=25 is a quarter, TARGET=test-more the rest.
	.ci/slowly $(PERCENT) $(MAKE) --no-print-directory $(TARGET)
test-slowly: PERCENT ?= 50
test-slowly: TARGET ?= test

.PHONY: unit
unit: ## Run the tests that need no cluster.
	go test -short $(ARGS) $$(go list ./... | grep -v -e /test/e2e -e /test/kueue -e /test/operators -e /test/kinds)

.PHONY: simulate
simulate: twin ## Play 10,000 seeded stories of the provisioner, as many in racks, 200 bad days of the clouds, 100,000 interleavings of the queues, 10,000 stories of several clusters, and many random cases of other tests.
	go test ./test/simulation -run TestRandomScenarios -timeout 240m -runs 10000 $(ARGS)
	go test ./test/brownouts -timeout 240m -days 200 $(ARGS)
	go test ./queueing/controller/loop -run TestInterleavings -timeout 120m -interleavings 100000 $(ARGS)
	go test ./queueing/dispatch -run TestOneClusterSpends -timeout 120m -worlds 10000 $(ARGS)
	go test ./provisioning/model -run TestIncrementalEqualsRebuilt -timeout 60m -sequences 3000 $(ARGS)
	$(PROGRAMS) go test -timeout 60m ./cloudprovider/... ./provisioning/... ./queueing/... ./cmd/view ./cmd/muster/externalgrpc \
		./test/bench/worth ./test/kueue/topology ./test/kueue/podsets

.PHONY: e2e-all
e2e-all: build ## Run all of test/e2e in full: ten minutes of storm, 20 changes of leader, 12 deaths a story, 1,000 races.
	$(MAKE) --no-print-directory operators
	MUSTER_SANDBOX_BIN=$(abspath $(SANDBOX)) MUSTER_OPERATORS=all go test ./test/e2e -timeout 180m \
		-storm 10m -leader-rounds 20 -kills 12 -races 1000 -pairs 2000 -garbage 200 $(ARGS)
	$(PROGRAMS) go test -p 1 ./test/clusters ./test/multikueue ./test/bench -timeout 60m $(ARGS)
	$(PROGRAMS) go test ./test/multikueue -manager muster -queues kueue -timeout 30m \
		-run 'TestTheFirst|TestTheNext|TestAJobLeavesItsCluster|TestWhatIsDeleted|TestAClusterThatLacks|TestPodsRunInOtherClusters'
	$(MAKE) --no-print-directory specs

# Kueue's module is copied, since the suites are compiled with a package of ours in it; the copy is removed at the end.
.PHONY: specs
specs: build ## Run the specs of Kueue's own integration suites against muster; SUITES=scheduler,tas runs those alone. The first time takes minutes more.
	$(PROGRAMS) go test ./test/kueue/specs -timeout 240m -run TestSpecs -v -suites $(SUITES) $(ARGS)
specs: SUITES ?= all

.PHONY: operators
operators: build ## Build the controllers of other projects that a sandbox can run, half an hour the first time, and test them.
	$(PROGRAMS) MUSTER_OPERATORS=$${MUSTER_OPERATORS:-all} go test -p 1 ./test/operators ./test/kinds -v -timeout 180m $(ARGS)
	$(PROGRAMS) MUSTER_OPERATORS=$${MUSTER_OPERATORS:-all} go test ./kwok/scenario/runner -v -run TestJobsOfOtherKindsArrive $(ARGS)

# What could not be built fails after the others have told their stories.
.PHONY: e2e-operators
e2e-operators: build ## Build those of them that can be downloaded, a quarter of an hour the first time, and tell a story of each kind of job: CI does.
	@status=0; names=$$(go run ./test/operators/build) || status=$$?; \
	if [ -z "$$names" ]; then echo "SKIP: no operator could be built, so no story of theirs is told"; exit $$status; fi; \
	$(PROGRAMS) MUSTER_OPERATORS=$$names go test -vet=off ./test/kinds -run 'TestEveryKindIsQueued|TestALeaderWorkerSet' -timeout 40m $(ARGS) || status=$$?; \
	exit $$status

.PHONY: soak
soak: build ## Let everything go wrong for an hour while gangs come and go, change leaders 100 times, kill muster 12 times a story; make test-more does a minute, 4 and 4.
	MUSTER_SANDBOX_BIN=$(abspath $(SANDBOX)) go test ./test/e2e -run 'InAStorm|LosesItsLease|MusterIsAway/killed' -timeout 180m -storm 1h -leader-rounds 100 -kills 12 $(ARGS)

.PHONY: bench
bench: build kueue runner ## Measure plans, requests and admissions, beside a stock Kueue (an hour); compare two runs with benchstat.
	$(PROGRAMS) go test -run '^$$' -bench . -benchmem -timeout 120m $(ARGS) ./test/bench/...

.PHONY: lint
lint: ## Run the linters of .golangci.yml.
	$(TOOL) golangci-lint run $(ARGS) ./...

.PHONY: generate
generate: ## Write again what is generated: deep copies, CRDs, dashboards, and the permissions that clouds must give.
	go run ./deploy/generate/kinds
	go run ./deploy/generate
	go run ./deploy/generate/clouds
	go -C deploy/generate/protos run . $(abspath cmd/muster/externalgrpc/protos)/externalgrpc.proto
	go run ./deploy/monitoring/generate
	go run ./deploy/generate/charts

.PHONY: verify
verify: lint generate ## All that a commit needs beside the tests: linters, generated files, go.mod; fails on a dirty tree.
	go mod tidy
	@git diff --exit-code -- . || { echo "Generated files or go.mod were out of date: they have been written again, commit them."; exit 1; }

.PHONY: clean
clean: ## Remove what was built.
	rm -rf $(BIN)
