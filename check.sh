#!/usr/bin/env bash
# The whole check: formatting, static analysis, tests with the race detector,
# end-to-end tests with real programs, every benchmark once, every fuzz target
# for a few seconds. Takes about ten minutes on two cores.
#
#   ./check.sh          everything
#   ./check.sh quick    without the race detector, benchmarks and fuzzing
#
# Tests that make namespaces need root; without it they skip and say so.
# FUZZTIME (default 3s) is the time for each fuzz target.
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

if [ "$quick" = quick ]; then
	step "tests"
	go test -shuffle=on ./...
	exit
fi

# The end-to-end tests run real programs against timeouts of theirs, and the
# race detector has nothing to find there that the packages' own tests do not.
step "tests, with the race detector"
go test -race -shuffle=on -timeout 10m $(go list ./... | grep -v '/test$')

step "end-to-end tests"
go test -timeout 10m ./test

step "allocation budgets, which the race detector would upset"
go test -run 'Alloc' ./...

step "every benchmark once"
go test -run '^$' -bench . -benchtime 1x ./... | grep -v 'no test files'

log=$(mktemp)
trap 'rm -f "$log"' EXIT
step "every fuzz target for ${FUZZTIME:=3s}"
grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r dir; do
	for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | cut -d' ' -f2 | sort -u); do
		echo "$dir $target"
		# A run that only did not wind up in time, as the fuzzer sometimes does
		# not, has found nothing; a finding is written down as a failing input.
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$FUZZTIME" "$dir" >"$log" 2>&1 ||
			{ grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log"; } ||
			{ cat "$log"; fail "$target"; }
	done
done

step "all passed"
