# Stet. `make help` lists the targets.
GO      ?= go
BIN     := bin/stet
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

SOURCE   ?=
TOPICS   ?=
DURATION ?=
RATE     ?=
BENCH    ?=
BASE     ?=

.PHONY: help run build test test-unit test-interop lint bench bench-peers profile profile-compare gate fuzz clean

help:
	@echo "make run    demo: a live mirror with lag, fail-over and byte proof (SOURCE=host:port TOPICS=re2 DURATION=30s RATE=20MB)"
	@echo "make build  builds $(BIN)"
	@echo "make test   all tests; those against real Apache Kafka run when Maven and a JDK are there"
	@echo "make lint   gofmt, go vet, golangci-lint and govulncheck where they can be had"
	@echo "make bench  benchmarks with ratios to their baselines (BENCH='--scenarios catchup-16k --gib 2' goes through)"
	@echo "make bench-peers  the same beside MirrorMaker 2 and Apache Kafka"
	@echo "make profile  records CPU, allocation, mutex and block profiles of the scenarios into profiles/"
	@echo "make profile-compare BASE=ref  base and head in turn: what grew per GiB; fails beyond benchmarks/budgets.json"
	@echo "make gate   what the mirror path allocates, copies and calls, against the budgets and the merge base; no clock"
	@echo "make fuzz   every fuzz target for FUZZTIME (10s)"
	@echo "make soak   100 rounds of kill -9 with retention and compaction running (ROUNDS=n)"
	@echo "make clean  removes what was built"

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/stet

run: build
	$(BIN) demo $(if $(SOURCE),--source $(SOURCE)) $(if $(TOPICS),--topics '$(TOPICS)') $(if $(DURATION),--duration $(DURATION)) $(if $(RATE),--rate $(RATE))

test: build
	GO=$(GO) scripts/test

test-unit:
	GO=$(GO) scripts/test unit

test-interop: build
	GO=$(GO) scripts/test interop

lint:
	GO=$(GO) scripts/lint

bench: build
	GO=$(GO) scripts/bench $(BENCH)

bench-peers: build
	GO=$(GO) scripts/bench peers $(BENCH)

profile: build
	GO=$(GO) scripts/profile $(BENCH)

profile-compare:
	GO=$(GO) scripts/profile-compare "$(BASE)" $(BENCH)

gate: build
	GO=$(GO) scripts/gate

fuzz:
	GO=$(GO) scripts/fuzz

soak: build
	GO=$(GO) STET_BIN=$(CURDIR)/$(BIN) scripts/soak

clean:
	rm -rf bin .build
