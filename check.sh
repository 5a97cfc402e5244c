#!/usr/bin/env bash
# The whole check: formatting, static analysis, tests with the race detector,
# end-to-end tests with real programs, every benchmark once, every fuzz target
# for a few seconds. Takes about eleven minutes on two cores.
#
#   ./check.sh          everything
#   ./check.sh quick    without the race detector, benchmarks and fuzzing
#
# Tests that make namespaces need root; without it they skip and say so.
# FUZZTIME (default 3s) is the time for each fuzz target, SOAKTIME (default 1m)
# that in which the soak breaks things; the nightly form is SOAKTIME=5m.
set -euo pipefail
cd "$(dirname "$0")"
quick=${1:-}

step() { printf '\n== %s (%ss)\n' "$*" "$SECONDS"; }
fail() { printf 'check: %s\n' "$*" >&2; exit 1; }

step "formatting"
unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || fail "run gofmt -w on: $unformatted"

step "modules"
go mod tidy -diff || fail "run go mod tidy"

step "vet"
go vet ./...

step "staticcheck"
go tool -modfile=tools/go.mod staticcheck ./...

step "checklocks: fields that a mutex guards"
go vet -vettool="$(go tool -modfile=tools/go.mod -n checklocks)" -inferred=false -wrappers=false ./...

if [ "$quick" = quick ]; then
	step "tests"
	go test -shuffle=on ./...
	exit
fi

# The end-to-end tests run real programs against timeouts of theirs, and the
# race detector has nothing to find there that the packages' own tests do not.
step "tests, with the race detector"
go test -race -shuffle=on -timeout 20m $(go list ./... | grep -vE '/test(/|$)')

step "end-to-end tests"
go test -timeout 20m ./test

step "soak for ${SOAKTIME:=1m}"
go test -timeout 30m -v ./test/soak -soak.time "$SOAKTIME"

step "kill matrix, reduced"
go test -timeout 20m ./test/killmatrix

step "tests under pressure"
go test -timeout 20m ./test/pressure

step "allocation budgets, which the race detector would upset"
go test -run 'Alloc' ./...

step "every benchmark once"
go test -run '^$' -bench . -benchtime 1x ./... | grep -v 'no test files'

step "every fuzz target for ${FUZZTIME:=3s}"
./test/fuzz.sh -time "$FUZZTIME" -jobs "$(nproc)"

step "all passed"
