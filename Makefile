# `make help` lists what there is.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

GO      ?= go
PYTHON  ?= python3
VENV    := .venv
VPYTHON := $(VENV)/bin/python
FUZZTIME ?= 30s
# Resharding is proven by count: so many random configurations, on real bytes.
RESHARD_FUZZ ?= 100000x
SOAK_MINUTES ?= 10
# RELEASE=-warm compiles once: enough to see that a release can be made.
RELEASE ?=
BENCH   ?= .

# Version, commit and date of the tree. Where there are none, as outside of a
# git checkout, the binary says so.
STAMP = $(shell cd tools && $(GO) run ./release -stamp)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/meridian, static
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-s -w $(STAMP)' -o bin/meridian ./cmd/meridian
	@tools/static.sh bin/meridian

# purego asks the system's loader for CUDA's driver, so this one cannot be static.
.PHONY: build-accel
build-accel: ## build bin/meridian-accel: the same, with GPUs; dynamic, and without cgo
	CGO_ENABLED=0 $(GO) build -tags accel -trimpath -buildvcs=false -ldflags '-s -w $(STAMP)' -o bin/meridian-accel ./cmd/meridian

.PHONY: up
up: build ## a whole cell on this machine: gateway, prefill and decode workers; ARGS=--demo shows that it works, and stops
	@bin/meridian up $(ARGS)

.PHONY: check
check: venv ## formatting, vet, staticcheck, vulnerabilities, licences, Python lint and types, the laws of the tree
	@bash tools/check.sh

.PHONY: test
test: venv ## everything people run before they push: Go, Python and C++; of Go and C++, what may have changed since it passed; FRESH=1: all, shuffled
	@cd tools && $(GO) run ./testsummary $(if $(FRESH),-fresh) -root .. -python "$$(test -x ../$(VPYTHON) && echo $(CURDIR)/$(VPYTHON))"

.PHONY: test-core
test-core: venv build ## of make test-real, of each component the one path that shows whether it is broken
	@cd tools && MERIDIAN_BIN=$(CURDIR)/bin/meridian $(GO) run ./testsummary -core -root .. -python "$$(test -x ../$(VPYTHON) && echo $(CURDIR)/$(VPYTHON))"

.PHONY: test-real
test-real: venv build ## tests against real components: faults and load on running cells, shells, peers (make peers) and vLLM (make vllm)
	@cd tools && MERIDIAN_BIN=$(CURDIR)/bin/meridian $(GO) run ./testsummary -real -root .. -python "$$(test -x ../$(VPYTHON) && echo $(CURDIR)/$(VPYTHON))"

.PHONY: test-vllm
test-vllm: venv build vllm ## of make test-real, the hand-offs between real vLLM servers; VLLM=0.25.1 selects another version
	@cd tools && MERIDIAN_BIN=$(CURDIR)/bin/meridian MERIDIAN_VLLM=$(CURDIR)/$(VLLM_HOME) $(GO) run ./testsummary -vllm -root .. -python "$$(test -x ../$(VPYTHON) && echo $(CURDIR)/$(VPYTHON))"

# A machine with a GPU may have neither Go nor a network: the tests are built here,
# and run there from a copy of the tree with bin/gpu.
GPU_PYTHON ?= python3
GPU_TESTS := tests/test_transformers.py tests/vllm/test_gpu.py tests/vllm/test_gpu_host.py tests/vllm/test_gpu_up.py tests/vllm/test_gpu_nixl.py tests/vllm/test_gpu_budget.py tests/vllm/test_gpu_governed.py tests/vllm/test_gpu_shared.py
GPU_ROOMS := move/cuda serve/doorserver move/fabric/host move/fabric/tcp

.PHONY: build-gpu
build-gpu: ## bin/gpu: the tests for a machine with a GPU, to be copied there with the tree
	@set -e; for room in $(GPU_ROOMS); do CGO_ENABLED=0 $(GO) test -tags accel -c -o bin/gpu/$${room//\//-}.test ./$$room; done; ls bin/gpu

.PHONY: test-gpu
test-gpu: $(if $(shell command -v $(GO)),build-gpu build-accel) ## tests of GPU memory, on a machine with a GPU; where Go is missing, from bin/gpu and bin/meridian-accel; those of real engines where GPU_PYTHON (python3) has them, and pytest
	@set -e; for room in $(GPU_ROOMS); do cd $(CURDIR)/$$room; \
	  MERIDIAN_REQUIRE=gpu $(CURDIR)/bin/gpu/$${room//\//-}.test -test.v -test.run GPU; done
	@if $(GPU_PYTHON) -c 'import pytest' 2>/dev/null; then \
	  cd python && MERIDIAN_BIN=$(CURDIR)/bin/meridian-accel $(GPU_PYTHON) -m pytest -p no:cacheprovider -v -s -rs $(GPU_TESTS); \
	else echo 'skipped: vllm-gpu, torch-gpu: $(GPU_PYTHON) has no pytest'; fi

.PHONY: bench-gpu
bench-gpu: $(if $(shell command -v $(GO)),build-gpu build-accel) ## what the kernels reach beside cuMemcpy, and transfers between two processes, on a machine with a GPU
	@MERIDIAN_REQUIRE=gpu bin/gpu/move-cuda.test -test.run '^$$' -test.bench GPU -test.benchtime 300ms
	@bin/meridian-accel bench cuda --python $(GPU_PYTHON)

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME each (30s); resharding for RESHARD_FUZZ configurations (100000x)
	@set -e; for package in $$($(GO) list ./...); do \
	  listed=$$($(GO) test -list '^Fuzz' $$package) || { echo "$$listed"; exit 1; }; \
	  for target in $$(grep '^Fuzz' <<<"$$listed" || true); do \
	    echo "== $$package $$target"; \
	    spent=$(FUZZTIME); [ $$target != FuzzTransfer ] || spent=$(RESHARD_FUZZ); \
	    $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $$spent $$package; \
	  done; done

.PHONY: bench
bench: ## every Go benchmark; BENCH=regexp selects
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count 5 ./...

ROUNDS ?= 15

.PHONY: bench-deciding
bench-deciding: ## what the rooms that decide cost beside plain ways of the same, medians of ROUNDS (15); a bound that is missed fails
	MERIDIAN_BENCH_BOUNDS=1 MERIDIAN_PEERS_DIR=$(abspath $(or $(MERIDIAN_PEERS_DIR),.peers)) \
	  $(GO) test -run '^$$' -bench '^BenchmarkAim$$' -benchtime $(ROUNDS)x -timeout 0 ./decide/... ./prove/replay

# Held out: an hour and seeds that were chosen after the last change of a policy. Who changes one after a look at them chooses others.
.PHONY: replay
replay: build ## the comparison of policies in docs/replay/policies, on held-out hours and seeds; DATA=DIR has the public traces
	@test -n "$(DATA)" || { echo 'DATA=DIR: where the public traces are; docs/workloads.md says which'; exit 1; }
	bin/meridian replay --workload servegen-r1 --data $(DATA) --policy all,stock-cut=stock,pascal-cut=pascal,stock-512=stock \
	  --set stock-cut.chunk_free=1 --set pascal-cut.chunk_free=1 --set stock-512.step_tokens=512 \
	  --load 0.5,0.7,0.9,1.1 --hours 1 --start 20 --seeds 5 --seed 2001 --out docs/replay/policies
	rm docs/replay/policies/report.json # half a megabyte, which the command above makes again

.PHONY: soak
soak: build ## two agents for SOAK_MINUTES (10), flat in memory; as long each: a cell whose parts are killed, an object cache whose are, prefixes under faults, a disk that fails, tears and hangs, simulated worlds, all tests shuffled and raced
	MERIDIAN_SOAK_MINUTES=$(SOAK_MINUTES) $(GO) test -count=1 -timeout 0 -v -run TestMemoryStaysFlat ./prove/chaos
	MERIDIAN_BIN=$(CURDIR)/bin/meridian MERIDIAN_SOAK_MINUTES=$(SOAK_MINUTES) $(GO) test -tags real -count=1 -timeout 0 -v -run 'TestRealAnythingIsKilled|TestRealStoreIsKilled|TestRealPrefixesOutliveFaults' ./prove/storm
	MERIDIAN_SOAK_MINUTES=$(SOAK_MINUTES) $(GO) test -count=1 -timeout 0 -v -run 'TestFaultsInTurns$$' ./keep/store/disk
	$(GO) run ./cmd/meridian sim --minutes $(SOAK_MINUTES)
	MERIDIAN_WORLD_SEEDS=$$((200 * $(SOAK_MINUTES))) $(GO) test -count=1 -timeout 0 -v -run 'TestGovernedWorlds$$' ./engine
	@end=$$(( $$(date +%s) + 60 * $(SOAK_MINUTES) )); rounds=0; \
	while [ $$(date +%s) -lt $$end ]; do \
	  $(GO) test -count=1 -shuffle=on $$(command -v gcc >/dev/null && echo -race) ./... >/tmp/meridian-soak.$$$$ 2>&1 \
	    || { cat /tmp/meridian-soak.$$$$; rm -f /tmp/meridian-soak.$$$$; exit 1; }; \
	  rounds=$$((rounds + 1)); echo "round $$rounds passed, $$(( (end - $$(date +%s)) / 60 )) minutes left"; \
	done; rm -f /tmp/meridian-soak.$$$$; echo "soak: $$rounds rounds passed"

.PHONY: generate
generate: ## write the files that are made from code
	$(GO) test . ./run/config ./see/telemetry ./move/transceiver/handoff ./prove/replay/report ./prove/replay/workload ./keep/store/arena ./keep/store/protocol -run 'TestGenerated|TestReference' -update
	cd tools && $(GO) run ./protogen

.PHONY: release
release: venv ## dist/: binaries for linux amd64 and arm64, wheel, checksums, SBOMs, provenance; built twice and compared
	cd tools && $(GO) run ./release -out ../dist $(RELEASE)

.PHONY: venv
venv: $(VENV)/installed ## the Python environment in .venv

# A machine without a package index still builds and tests the Go part: the
# summary then names python-packages as missing. An environment that was there
# before stays, as it is.
$(VENV)/installed: python/requirements.lock python/requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'Python 3.11 or newer is needed: set PYTHON=…'; exit 1; }
	@install() { $(VENV)/bin/pip --disable-pip-version-check -q install -r python/requirements.lock -r python/requirements-dev.lock; }; \
	if [ -x $(VPYTHON) ]; then \
	  if install; then touch $@; else echo 'the Python environment could not be brought up to date; it is used as it is'; fi; \
	elif $(PYTHON) -m venv $(VENV) && install; then touch $@; \
	else echo 'the Python environment could not be made; its tests will be skipped'; rm -rf $(VENV); fi

# What `meridian bench` measures beside. Python wheels come into .peers/; what
# only a package manager can bring is named, not installed.
PEERS := .peers

.PHONY: peers
peers: $(PEERS)/nixl/installed $(PEERS)/mooncake/installed $(PEERS)/versitygw/installed $(PEERS)/otelcol/installed ## NIXL and Mooncake for meridian bench, versitygw (an S3 server) and otelcol (the OpenTelemetry Collector) for tests; names the system packages that are missing
	@missing=; \
	for program in iperf3 redis-server; do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	for pair in libibverbs.so.1:libibverbs1 librdmacm.so.1:librdmacm1 libnuma.so.1:libnuma1 libcurl.so.4:libcurl4; do \
	  $(PYTHON) -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' $${pair%%:*} 2>/dev/null || missing="$$missing $${pair##*:}"; \
	done; \
	if [ -n "$$missing" ]; then echo "missing, for iperf3, Redis and Mooncake: apt-get install$$missing"; else echo 'peers are installed'; fi

$(PEERS)/nixl/installed: PIP_OPTIONS := --no-deps

$(PEERS)/versitygw/installed: prove/bench/peers/versitygw.version
	rm -rf $(@D) && mkdir -p $(@D)
	GOBIN=$(abspath $(@D)) CGO_ENABLED=0 $(GO) install github.com/versity/versitygw/cmd/versitygw@$$(cat $<)
	touch $@

OTELCOL := tools/otelcol

$(PEERS)/otelcol/installed: $(OTELCOL)/go.mod $(OTELCOL)/main.go
	rm -rf $(@D) && mkdir -p $(@D)
	CGO_ENABLED=0 $(GO) build -C $(OTELCOL) -o $(abspath $(@D))/otelcol .
	touch $@

$(PEERS)/%/installed: prove/bench/peers/%.txt
	rm -rf $(@D) && $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip --disable-pip-version-check -q install $(PIP_OPTIONS) -r $<
	touch $@

# A real vLLM, on the CPU, with torch and transformers, and vLLM's own tests beside
# it. prove/bench/peers/vllm/ says what is installed and what is made up for.
VLLM      ?= 0.32.0
VLLM_HOME := $(PEERS)/vllm$(patsubst %,-%,$(filter-out 0.32.0,$(VLLM)))
VLLM_FROM := prove/bench/peers/vllm

.PHONY: vllm
vllm: $(VLLM_HOME)/installed ## vLLM on the CPU, with torch and transformers, for make test-real; VLLM=0.25.1 selects another version

$(VLLM_HOME)/installed: $(VLLM_FROM)/$(VLLM).txt $(wildcard $(VLLM_FROM)/*.py)
	@for tool in gcc readelf; do command -v $$tool >/dev/null || { echo "$$tool is needed to make torch load without CUDA"; exit 1; }; done
	@$(PYTHON) -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' || { echo 'vLLM needs libnuma1: apt-get install libnuma1'; exit 1; }
	rm -rf $(@D) && $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip --disable-pip-version-check -q install --no-deps -r $<
	@packages=$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && set -x && \
	$(@D)/bin/python $(VLLM_FROM)/stub_cuda.py $$packages && \
	$(@D)/bin/python $(VLLM_FROM)/name_vllm.py $$packages
	$(@D)/bin/python $(VLLM_FROM)/fetch_tests.py $(VLLM) $(@D)
	$(@D)/bin/vllm --version
	touch $@

.PHONY: clean
clean: ## remove what was built and installed here
	rm -rf bin dist $(VENV) $(PEERS)
