# Cofferdam: the two commands a newcomer needs are `make demo` and `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build

export CGO_ENABLED := 0

BIN      := $(CURDIR)/bin
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  := -s -w -X main.version=$(VERSION)
# One set of flags for all of the engine: its 1,700 packages are compiled once.
ENGINE   := -trimpath
# Runs a suite and tells at its end what took how long against its budget.
BUDGET   := $(BIN)/budget
PROGRAMS := cofferdam cofferdamd cofferdam-worker cofferdam-gateway cofferdam-guest cofferdam-attack runsc

.PHONY: build demo test test-unit test-root test-slow fuzz bench soak lint tools clean

## build: every program into bin/
build:
	mkdir -p $(BIN)
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/ $(addprefix ./cmd/,$(PROGRAMS))
	cd engine && go build $(ENGINE) -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/cofferdam-engine

## tools: the Debian packages the programs and tests call (git, curl, …)
tools:
	.ci/packages

## demo: install, build, start the platform, fix a real bug in a sandbox, verify the receipt
demo: tools build
	go build -o $(BIN)/demo-modelserver ./demo/modelserver
	demo/run

## test: everything, as CI runs it (root)
test: tools build lint-house test-unit test-root fuzz

.PHONY: lint-house
lint-house:
	test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'run gofmt -w on these files'; exit 1; }
	go vet ./...
	go vet -tags root ./...
	go vet -tags bench,soak ./test/...
	cd engine && go vet $(ENGINE) -tags soak ./...

## test-unit: no root needed, fast
test-unit: $(BUDGET)
	$(BUDGET) unit go test ./...

.PHONY: $(BUDGET)
$(BUDGET):
	go build -o $@ ./test/budget

## test-root: real gVisor, real namespaces, kill -9; one package at a time since they share the machine
test-root: build $(BUDGET)
	cd engine && $(BUDGET) engine go test $(ENGINE) -timeout 15m ./...
	COFFERDAM_BIN=$(BIN) $(BUDGET) root go test -tags root -p 1 -timeout 60m ./...

## fuzz: what reads hostile bytes, a minute each (FUZZTIME=1h for an hour)
fuzz:
	test/fuzz/run

## test-slow: what takes too long for each change: the slower harnesses, large files at full size
test-slow: build
	COFFERDAM_BIN=$(BIN) go test -tags root,slow -p 1 -timeout 60m -run 'TestOpencodeAndGemini|TestOpencodeIsResumed|SpeaksACP|LoadsItsSession|TestManyFiles|TestLargeFileFlatMemory|TestLongFolder|TestAttackSees' ./internal/sandbox/gvisor ./test/e2e

## bench: ratios side by side in one run; prints the table of docs/benchmarks.md
bench: tools build
	COFFERDAM_BIN=$(BIN) go test -tags bench -count 1 -timeout 30m -run TestBench -v ./test/bench

## soak: a thousand tasks while everything is killed, then hours of fuzzing; not in CI (test/soak/doc.go has the variables)
soak: tools build
	cd engine && go test $(ENGINE) -tags soak -count 1 -timeout 30m -run TestMemory -v ./internal/embedded
	COFFERDAM_BIN=$(BIN) go test -tags soak -count 1 -timeout 0 -v ./test/soak
	COFFERDAM_BIN=$(BIN) test/soak/fuzz

## lint: the opt-in linters of .golangci.yml
lint: lint-house
	go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run ./...

clean:
	rm -rf $(BIN)
