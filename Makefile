# `make help` lists what there is.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

GO      ?= go
PYTHON  ?= python3
VENV    := .venv
VPYTHON := $(VENV)/bin/python
FUZZTIME ?= 30s
SOAK_MINUTES ?= 10
BENCH   ?= .

COMMIT  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
VERSION := $(shell git describe --tags --exact-match --match 'v*' 2>/dev/null || echo v0.0.0-dev.$(COMMIT))
DATE    := $(shell git log -1 --format=%cI 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
TOOL    := $(GO) tool -modfile=tools/go.mod

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/meridian, static
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/meridian ./cmd/meridian
	@if command -v readelf >/dev/null; then \
	  if readelf -lW bin/meridian | grep -q INTERP || readelf -dW bin/meridian | grep -q NEEDED; then \
	    echo 'bin/meridian is not static:'; readelf -dW bin/meridian; exit 1; \
	  else echo 'bin/meridian is static'; fi; \
	else echo 'static check skipped: needs readelf'; fi

.PHONY: check
check: venv ## formatting, vet, staticcheck, vulnerabilities, licences, Python lint and types, the laws of the tree
	@bash tools/check.sh

.PHONY: test
test: venv build ## everything people run before they push: Go, Python and C++
	@cd tools && MERIDIAN_BIN=$(CURDIR)/bin/meridian $(GO) run ./tally -root .. -python "$$(test -x ../$(VPYTHON) && echo $(CURDIR)/$(VPYTHON))"

.PHONY: test-real
test-real: venv build ## tests against real components: shells today; peers, engines and browsers as they arrive
	@cd tools && MERIDIAN_BIN=$(CURDIR)/bin/meridian $(GO) run ./tally -real -root .. -python "$$(test -x ../$(VPYTHON) && echo $(CURDIR)/$(VPYTHON))"

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME each (30s)
	@set -e; for package in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
	    echo "== $$package $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package; \
	  done; done

.PHONY: bench
bench: ## every Go benchmark; BENCH=regexp selects
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count 5 ./...

.PHONY: soak
soak: ## all tests over and over, shuffled and raced, for SOAK_MINUTES (10)
	@end=$$(( $$(date +%s) + 60 * $(SOAK_MINUTES) )); rounds=0; \
	while [ $$(date +%s) -lt $$end ]; do \
	  $(GO) test -count=1 -shuffle=on $$(command -v gcc >/dev/null && echo -race) ./... >/tmp/meridian-soak.$$$$ 2>&1 \
	    || { cat /tmp/meridian-soak.$$$$; rm -f /tmp/meridian-soak.$$$$; exit 1; }; \
	  rounds=$$((rounds + 1)); echo "round $$rounds passed, $$(( (end - $$(date +%s)) / 60 )) minutes left"; \
	done; rm -f /tmp/meridian-soak.$$$$; echo "soak: $$rounds rounds passed"

.PHONY: generate
generate: ## write the files that are made from code
	$(GO) test ./config ./telemetry -run 'TestGenerated|TestReference' -update

.PHONY: release
release: venv ## dist/: binaries for linux amd64 and arm64, wheel, checksums, SBOMs, provenance; built twice and compared
	cd tools && $(GO) run ./release -out ../dist

.PHONY: venv
venv: $(VENV)/installed

# A machine without a package index still builds and tests the Go part: the
# summary then names python-packages as missing.
$(VENV)/installed: python/requirements.lock python/requirements-dev.lock
	@command -v $(PYTHON) >/dev/null || { echo 'Python 3.11 or newer is needed: set PYTHON=…'; exit 1; }
	@if { [ -x $(VPYTHON) ] || $(PYTHON) -m venv $(VENV); } && \
	  $(VENV)/bin/pip --disable-pip-version-check -q install -r python/requirements.lock -r python/requirements-dev.lock; \
	then touch $@; else echo 'the Python environment could not be made; its tests will be skipped'; rm -rf $(VENV); fi

.PHONY: clean
clean: ## remove what was built and installed here
	rm -rf bin dist $(VENV)
