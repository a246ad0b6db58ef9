# Everything a developer and CI run. `make test` is the one entry point: it needs Go and,
# where something else is missing, installs it or names the command (see test/tools/deps.sh).

TOOL := go tool -modfile=test/tools/go.mod

# A package's tests take seconds; this ends one that hangs, with its goroutines printed.
TEST_TIMEOUT ?= 10m

# Extra arguments of go test, e.g. make unit TESTFLAGS='-run TestApply -v' PKG=./rules/...
TESTFLAGS ?=
PKG ?= ./...

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test
test: deps build vet tidy lint check-generated unit ## everything that CI checks

.PHONY: deps
deps: ## install what the tests run, such as Postgres and Chromium, where it is missing
	test/tools/deps.sh

.PHONY: build
build: ## compile everything
	go build ./...

.PHONY: vet
vet: ## go vet
	go vet ./...

.PHONY: tidy
tidy: ## fail when go.mod or go.sum is not what the imports need
	go mod tidy -diff

.PHONY: lint
lint: ## golangci-lint on the Go code, buf lint on the protos
	$(TOOL) golangci-lint run ./...
	$(TOOL) buf lint

.PHONY: fmt
fmt: ## format the Go code as lint wants it
	$(TOOL) golangci-lint fmt ./...

.PHONY: generate
generate: ## regenerate the Go code of the protos
	$(TOOL) buf generate

.PHONY: check-generated
check-generated: ## fail when generated code differs from its source
	test/tools/check-generated.sh

.PHONY: unit
unit: ## all tests, with the race detector
	go test -race -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PKG)

# How long each fuzz target runs. The kept inputs run with every test; the search for new ones is not part of what CI
# checks, since what it finds by chance is mostly not of the change at hand.
FUZZTIME ?= 1m

.PHONY: fuzz
fuzz: ## every fuzz target, for FUZZTIME each
	test/tools/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## what a lookup, a decision and the counting of it cost
	go test -run '^$$' -bench . ./rules ./enforce ./enforce/meter

.PHONY: binaries
binaries: ## build the three commands into bin/
	go build -o bin/ ./cmd/...
