#!/usr/bin/env bash
# Runs every fuzz target, in Go and in C, and writes down what came of it.
#
#   test/fuzz.sh [-time 3s] [-jobs 1] [-out DIR] [-run REGEXP] [-blind] [-linked DIR] [-list] [-keep N]
#
# -time is for each target (90s, 10m, 1h), -jobs is how many run at once, each on
# one processor. DIR, a temporary directory if not given, gets a log for each target
# and summary.txt. With the same DIR a second call goes on where the first was
# stopped: what has run for that time without a finding is not run again.
#
# -linked DIR keeps there what -blind links, and links nothing that is there already: a folder's
# test is named by its path, with _ for /.
#
# -blind compiles nothing in Go anew for the fuzzer, which is minutes of CPU: it mutates the inputs
# without seeing what code they reach. For seconds a target that makes no difference.
#
# Targets in Go are named DIRECTORY:FuzzName; a finding lies in DIRECTORY/testdata/fuzz.
# Those in C are named directsockets/preload:NAME; a finding lies in the log's directory.
# They are left out where there is no C compiler with -fsanitize-coverage.
# The status is 1 if there was a finding.
#
# -keep N runs nothing: for each target in Go that has fewer than N inputs in its
# testdata/fuzz, it copies some of those of up to 1 KiB there that earlier runs found
# interesting (they are in Go's cache), small and large ones. They are to be committed.
set -euo pipefail
cd "$(dirname "$0")/.."

time=3s jobs=1 out='' run=. list='' keep='' guided=1 linked=''
fail() { printf 'fuzz.sh: %s\n' "$*" >&2; exit 2; }
while [ $# -gt 0 ]; do
	case $1 in
	-time | -jobs | -out | -run | -keep | -linked)
		[ $# -ge 2 ] || fail "$1 wants a value"
		declare "${1#-}=$2"
		shift
		;;
	-list) list=1 ;;
	-blind) guided= ;;
	*) fail "what is $1? See the top of this file" ;;
	esac
	shift
done
case $time in
*[0-9]h) seconds=$((${time%h} * 3600)) ;;
*[0-9]m) seconds=$((${time%m} * 60)) ;;
*[0-9]ms) seconds=1 ;; # those in C count whole seconds
*[0-9]s) seconds=${time%s} ;;
*) fail "-time $time: use a number and s, m or h" ;;
esac
remove=
[ -z "$linked" ] || [ -z "$guided" ] || fail "-linked is for -blind"
[ -n "$out" ] || { out=$(mktemp -d); remove=1; }
mkdir -p "$out"
out=$(cd "$out" && pwd)

c=directsockets/preload
targets=$(grep -rE '^func Fuzz' --include='*_test.go' . | sed -E 's|^\./(.*)/[^/]*_test\.go:func (Fuzz[A-Za-z0-9_]*).*|\1:\2|' | sort -u)
if make -s -C "$c" fuzz BUILD="$out/c" >"$out/c.log" 2>&1; then
	targets+=$'\n'$("$out/c/fuzz_test" | sed "s|^|$c:|")
elif ! echo 'int x;' | ${CC:-cc} -fsanitize=address -fsanitize-coverage=trace-pc -xc -c -o /dev/null - 2>/dev/null; then
	echo "fuzz.sh: no C compiler with -fsanitize-coverage: targets in C are left out" >&2
else
	cat "$out/c.log" >&2
	fail "the targets in C do not build"
fi
targets=$(grep -E -- "$run" <<<"$targets" || fail "no target has a name like $run")
if [ -n "$list" ]; then
	printf '%s\n' "$targets"
	exit
fi

cache=$(go env GOCACHE)/fuzz/$(go list -m) # where go test -fuzz keeps what is interesting
if [ -n "$keep" ]; then
	while IFS=: read -r dir target; do
		case $target in Fuzz*) ;; *) continue ;; esac
		to=$dir/testdata/fuzz/$target from=$cache/$dir/$target
		mkdir -p "$to"
		have=$(find "$to" -type f | wc -l)
		[ "$have" -lt "$keep" ] && [ -d "$from" ] || continue
		find "$from" -type f -size -1025c -printf '%s %p\n' | sort -n | cut -d' ' -f2 |
			awk -v n=$((keep - have)) '{p[NR] = $0} END {for (i = 0; i < n && i < NR; i++) print p[1 + int(i * NR / (n < NR ? n : NR))]}' |
			while read -r f; do cp "$f" "$to"; done
	done <<<"$targets"
	exit
fi

# built DIRECTORY: sets bin to the package's test, instrumented for the fuzzer unless -blind, which it
# links once for all targets in it.
programs=$linked
[ -n "$programs" ] || { programs=$(mktemp -d); trap 'rm -rf "$programs"' EXIT; }
built() {
	bin=$programs/${1//\//_}
	(flock 9 && { [ -e "$bin" ] || go test -c ${guided:+-fuzz .} -o "$bin" "./$1"; }) 9>"$bin.lock"
}

# One target: runs it and writes its result, a line for the summary.
one() {
	local dir=${1%:*} target=${1#*:} file=$out/${1//[\/:]/_} began=$SECONDS crashes=0 code=0
	if [ -e "$file.result" ] && [ "$(cut -d' ' -f1,6 "$file.result")" = "$time 0" ]; then
		return
	fi
	case $target in
	Fuzz*) built "$dir" && cd "$dir" && timeout $((seconds + 600)) "$bin" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" \
		-test.fuzzminimizetime 1s -test.parallel 1 -test.fuzzcachedir "$cache/$dir" -test.paniconexit0 ;;
	*) (cd "$dir" && timeout $((seconds + 600)) "$out/c/fuzz_test" "$target" "$seconds" "$out") ;;
	esac >"$file.log" 2>&1 || code=$?
	# A run that only did not wind up in time, as Go's fuzzer sometimes does not, has
	# found nothing; a finding is written down as a failing input.
	if [ "$code" != 0 ] && { grep -q 'Failing input' "$file.log" || ! grep -q 'context deadline exceeded' "$file.log"; }; then
		crashes=1
	fi
	# The last line of progress: execs, a second, new interesting.
	local said
	said=$(sed -nE 's|^fuzz: elapsed: .*, execs: ([0-9]+) \([^)]*\)(, new interesting: ([0-9]+).*)?$|\1 0\3|p' "$file.log" | tail -1)
	[ -n "$said" ] || said="0 0"
	local execs=${said% *} elapsed=$((SECONDS - began))
	echo "$time $1 $execs $((execs / (seconds > 0 ? seconds : 1))) ${said#* } $crashes ${elapsed}s" >"$file.new"
	mv "$file.new" "$file.result"
	if [ $crashes = 1 ]; then
		echo "$1: a finding; $file.log" >&2
	else
		echo "$1: $execs executions"
	fi
}

while read -r t; do
	while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
	one "$t" &
done <<<"$targets"
wait

# What has run in this and in earlier calls.
cat "$out"/*.result | grep "^$time " | sort -k2 | awk -v time="$time" '
	function row(a, b, c, d, e, f) { printf "%-45s %14s %12s %16s %8s %8s\n", a, b, c, d, e, f }
	BEGIN { row("target, " time " each", "executions", "per second", "new interesting", "crashes", "elapsed") }
	{ row($2, $3, $4, $5 + 0, $6, $7); execs += $3; fresh += $5; crashes += $6 }
	END { row(NR " targets", execs, "", fresh, crashes, "") }' >"$out/summary.txt"
cat "$out/summary.txt"
bad=$(grep -lE "^$time .* 1 [0-9]+s\$" "$out"/*.result || true)
if [ -n "$bad" ]; then
	for result in $bad; do
		printf '\n== %s\n' "${result%.result}.log"
		tail -40 "${result%.result}.log"
	done
	exit 1
fi
[ -z "$remove" ] || rm -rf "$out"
