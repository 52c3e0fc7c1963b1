SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

MODULES := . bench deploy/test deploy/prometheus/test
GOLANGCI := go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint
FUZZTIME ?= 5s

.PHONY: help build test check gofmt vet lint fmt fuzz generated long bench bench-scale bench-profile bench-simulate demo

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the static binary, bin/envoy-rls
	CGO_ENABLED=0 go build -trimpath -o bin/envoy-rls ./cmd/envoy-rls

test: ## all tests of all modules with the race detector; installs redis-server, Envoy and Chromium if missing
	@scripts/test-deps
	@failed=; for module in $(MODULES); do \
	  race=-race; [[ $$module != deploy/* ]] || race=; \
	  (cd $$module && go test $$race -count=1 -timeout=15m ./...) || failed+=" $$module"; \
	done; go test -count=1 -run=Allocates ./pkg/... | grep -v 'no test' || failed+=" allocations"; \
	[[ -z $$failed ]] || { echo "failed in module:$$failed" >&2; exit 1; }

check: gofmt vet lint test fuzz generated ## everything a change must pass

gofmt:
	@unformatted=$$(gofmt -l .); [[ -z $$unformatted ]] || { printf 'not formatted (make fmt):\n%s\n' "$$unformatted" >&2; exit 1; }

vet:
	@for module in $(MODULES); do (cd $$module && go vet ./...); done

lint: ## golangci-lint in all modules (slow the first time: it is built)
	@for module in $(MODULES); do (cd $$module && $(GOLANGCI) run ./...); done

fmt: ## format all Go code
	@for module in $(MODULES); do (cd $$module && $(GOLANGCI) fmt ./...); done

fuzz: ## each fuzz target for FUZZTIME (5s)
	@go test -list='^Fuzz' ./... | awk '/^Fuzz/ {fuzz[++n] = $$1} /^ok/ {for (i = 1; i <= n; i++) print $$2, fuzz[i]; n = 0}' | \
	while read -r package target; do \
	  echo "$$target"; go test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) "$$package" </dev/null; \
	done

generated: # go generate must change nothing
	@state() { git status --porcelain; git diff; }; before=$$(state); go generate ./...; \
	[[ $$before == "$$(state)" ]] || { git diff --stat; echo 'generated files were out of date' >&2; exit 1; }

long: ## a million random decisions on which both stores must agree, and ten minutes of restarts of Redis
	STORETEST_DECISIONS=1000000 go test -count=1 -run=TestStore/agrees -v ./pkg/memstore ./pkg/redisstore
	DRILL_SOAK=10m go test -race -count=1 -timeout=20m -run=ManyRestarts -v ./drills

bench: build ## measure the server beside a no-op, into bench/results; BENCH='--extra ...' adds another one
	cd bench && go run . compare --binary ../bin/envoy-rls --results results $(BENCH)

bench-scale: build ## measure it with more and more rules, counters, callers and descriptors
	cd bench && go run . scale --binary ../bin/envoy-rls --results results $(BENCH)

bench-profile: build ## tell on what the CPU time of a decision is spent, into bench/results
	cd bench && go run . profile --binary ../bin/envoy-rls --results results $(BENCH)

bench-simulate: ## tell what simulate costs, into bench/results
	go test -run='^$$' -bench=Simulate -benchtime=1000000x -timeout=1h ./cmd/envoy-rls >bench/results/simulate.txt

demo: ## envoy-rls behind a real Envoy
	@scripts/demo
