#!/usr/bin/env bash
# Checks this tree. With no word it does what a person wants before a commit; see usage below.
set -uo pipefail
cd "$(dirname "$0")" || exit

usage() {
	cat <<'END'
usage: ./check.sh [--no-install] [full|nightly]
       ./check.sh speed [COMMIT]
       ./check.sh coverage|lines

  (no word)  static analysis, the short form of every package's tests, and an
             end-to-end test of each promise: at most five minutes on two quiet cores
             (nine the first time, as all is compiled), and less where Go's cache
             knows that a package has not changed
  full       that, and then everything that CI runs: the race detector, all end-to-end
             tests, models, every benchmark once, every fuzz target for a moment
  nightly    full, with the tests that take minutes each and longer soaks and fuzzing
  speed      compares the speed of this tree with that of COMMIT, or of the last release
             or else where this branch began; no test
  coverage   how much of each package its own tests reach, the least first
  lines      how many lines the product, its tests and its documentation have

It first installs the Debian packages that tests need: ten for the short form
(test/packages.txt names them), all for the others. With --no-install it names those
that are missing, and fails.

It goes on when something fails, and says at the end what failed and which tests were
skipped, and why; the last line counts the tests. Up to eight tests that failed are run
again with nothing beside them, those that took less than a minute thrice. Those that
pass are listed as unsteady, unless there was a data race, a panic, a sanitizer's finding
or damaged data. The status is 1 if anything failed, 2 after wrong arguments.

Tests that make namespaces need root; without it they run in a user namespace, or skip
with a reason. FUZZTIME is the time for each fuzz target (full 300ms, nightly 20s),
SOAKTIME that in which the soak breaks things (full 30s, nightly 5m). CHECKTIME is how
long the check may take, in seconds (full 5000, nightly 22500): what still runs then is
ended, and says where it was.
END
}

form=short budget=300 install=(test/install.sh)
if [ "${1:-}" = --no-install ]; then
	install+=(--no-install)
	shift
fi
case ${1:-} in
-h | --help | help) usage; exit ;;
full | nightly) form=$1; shift ;;
speed) [ $# -le 2 ] || { usage >&2; exit 2; } ;;
coverage | lines) [ $# = 1 ] || { usage >&2; exit 2; } ;;
esac
if [ $# -gt 0 ] && [[ ! $1 =~ ^(speed|coverage|lines)$ ]]; then
	printf 'check.sh: unknown word %s\n' "$1" >&2
	usage >&2
	exit 2
fi

work=$(mktemp -d)
lanes=()
# ended ends what still runs, and prints what it had come to: who ends a check wants to know where it was.
ended() {
	local i
	for i in "${!lanes[@]}"; do
		printf '\n== the check has ended before this:\n'
		tail -n 100 "$work/beside-$i"
		kill -- "-${lanes[i]}" 2>/dev/null
	done
	rm -rf "$work"
}
trap ended EXIT
trap 'exit 143' INT TERM HUP
account=$work/account # what the tests have come to, for test/tally
touch "$work/failed" "$work/upset" # a line for each step that failed, or in which a test did

# step NAME COMMAND...: runs a part of the check, and says how long it took.
step() {
	name=$1
	printf '\n== %s (%ss)\n' "$name" "$SECONDS"
	time "${@:2}" || echo "failed step: $name" >>"$work/failed"
}
TIMEFORMAT='-- it took %0R s, and %0U + %0S s of CPU'

# beside COMMAND...: runs steps beside those that follow, until joined, which prints what they said.
# Most tests wait more than they compute.
beside() {
	set -m # a process group, for the end of this script to end it
	"$@" &>"$work/beside-${#lanes[@]}" &
	lanes+=($!)
	set +m
}
joined() {
	local i
	for i in "${!lanes[@]}"; do
		wait "${lanes[i]}"
		cat "$work/beside-$i"
	done
	lanes=()
}

# limit prints how long a step may take: what hangs is to end, and to say where, before CI's 90 minutes.
limit() {
	local whole=5000 left
	[ "$form" != nightly ] || whole=22500
	left=$((${CHECKTIME:-$whole} - SECONDS))
	echo "$((left > 60 ? left : 60))s"
}

# level makes the ground the same on every host: what a login shell, a container or a CI machine has
# set otherwise is no test's subject.
level() {
	local free tmp=${TMPDIR:-}
	umask 022
	export LC_ALL=C
	export GOFLAGS="${GOFLAGS:+$GOFLAGS }-trimpath" # a clone in another folder finds what was built before
	[ ${#tmp} -le 24 ] || export TMPDIR=/tmp # the path of a UNIX socket has at most 107 bytes
	# Objects in C are kept as Go keeps its own; the folder that they were built in is no difference.
	# Programs of other users, who may not write there, do not come into $kept and find the compiler.
	# PATH is the same each time: Go's cache knows that a test has read it.
	kept=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/exnet-check
	if [ -d /usr/lib/ccache ] && mkdir -p "$kept" && chmod 700 "$kept"; then
		ln -sfn /usr/lib/ccache "$kept/compilers"
		export PATH=$kept/compilers:$PATH CCACHE_NOHASHDIR=1 CCACHE_DIR="${CCACHE_DIR:-${kept%/*}/ccache}"
	fi
	export GORACE=atexit_sleep_ms=0 # a raced program would end a second later
	[ "$(ulimit -n)" -ge 20000 ] || ulimit -n 20000 2>/dev/null ||
		echo "At most $(ulimit -n) descriptors: tests with many connections may fail."
	free=$(df --output=avail -BM "$work" | tail -1 | tr -dc 0-9)
	[ "$free" -ge 4000 ] || echo "Only $free MB are free in $work: what is built may not fit."
}

# apart COMMAND...: runs it where nothing of this host, and no other lane, is in its way: in a
# network namespace of its own (ports that others use, their brokers, IPv6 switched off), with
# processes of its own, an empty /run and /dev/shm, and without proxies. Where that is not allowed
# it runs here. The shell stays, for it has to wait for the children of those that ended.
apart() {
	if [ -n "$alone" ]; then
		unshare -nmpf --kill-child bash -c "$ground"' && { "$@"; exit; }' apart "$@"
	else
		"$@"
	fi
}
ground='mount -t proc none /proc && mount -t tmpfs -o mode=755 none /run && mkdir -p /run/netns /run/lock &&
	mount -t tmpfs -o mode=1777 none /dev/shm && ip link set lo up && {
		for f in /proc/sys/net/ipv6/conf/{all,default,lo}/disable_ipv6; do
			[ ! -w "$f" ] || echo 0 >"$f"
		done
		unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
	}'
alone=$(unshare -nmpf bash -c "$ground && echo yes" 2>/dev/null)

# tests ARGUMENTS...: runs go test, for the sum at the end, which decides on tests that fail. What
# vet finds is lint's: go test would look for it once more for each kind of build.
tests() {
	local race=()
	[[ " $* " != *" -race "* ]] || race=(-race)
	apart go test -json -count=1 -vet=off -exec "$work/tally -file $account -cost" "$@" | "$work/tally" -file "$account" "${race[@]}"
	judged "${PIPESTATUS[*]}"
}
# judged STATUS: notes that tests of this step have failed, which is no failure of the step.
judged() {
	case $1 in
	'0 0') ;;
	*' 1') echo "step with tests that failed: $name" >>"$work/upset" ;;
	*) return 1 ;;
	esac
}

# again runs tests that failed once more, with nothing beside them and as often as "tally -again" says:
# work beside a test may be what it failed by. One that passes is listed as unsteady, to be mended.
again() {
	local race times package pattern test
	while IFS=$'\t' read -r race times package pattern test; do
		printf '\n== again: %s (%ss)\n' "$test" "$SECONDS"
		[ "$race" = -race ] || race=-race=false
		if apart go test -json "$race" -count="$times" -timeout "$(limit)" -run "$pattern" "$package" </dev/null | "$work/tally" -file "$work/second"; then
			"$work/tally" -file "$account" -steady "$test"
		fi
	done < <("$work/tally" -file "$account" -again)
}

formatting() {
	local files
	files=$(gofmt -l .) || return
	[ -z "$files" ] || { printf 'run gofmt -w on: %s\n' "$files"; return 1; }
}
# It fetches all modules, for what runs apart has no network: a mirror may be away for a moment.
modules() {
	download || { sleep 10; download; } || return
	go mod tidy -diff || { echo 'run go mod tidy'; return 1; }
}
download() { go mod download && go mod download -modfile=tools/go.mod; }
# The tables of README are those of the newest report in docs/results, whose names end with a commit's.
readme() {
	local reports=(docs/results/20*-*[0-9a-f].json.gz)
	go run ./cmd/dsbench readme --check "${reports[-1]}" README.md
}
# Without the commit in it, it is the same program as before, and knows what it has found of packages
# that have not changed.
lint() { go -C tools build -buildvcs=false -o "$work/lint" ./lint && "$work/lint" ./...; }
# Of the scripts, and of the C of the library, of ports and of memory. cppcheck does not know that a
# system call fills what an iovec points to.
analysers() {
	local ignored=(arrayIndexThenCheck internalAstError uninitvar ctuuninitvar unknownMacro missingInclude)
	git ls-files '*.sh' .ci/run | grep -v /testdata/ | xargs shellcheck --severity=warning --shell=bash --exclude=SC2046,SC2034,SC2154,SC2164 &&
		git ls-files '*.c' | grep -vE '/(testdata|probes|ctest|source)/|^test/' |
		xargs cppcheck --enable=warning,portability,performance --error-exitcode=1 --quiet --std=c11 -D__linux__ -D__x86_64__ \
			"${ignored[@]/#/--suppress=}"
}
# vale reads what people read. It takes minutes to build, once.
prose() {
	GOFLAGS=-mod=mod go run github.com/vale-cli/vale/v3/cmd/vale@v3.21.0 --config docs/.vale.ini --output line \
		README.md docs/*.md docs/design/*.md docs/results/[a-z]*.md
}
raced() { tests -race -shuffle=on -p $((2 * $(nproc))) -parallel $((4 * $(nproc))) -timeout "$(limit)" $(go list ./... | grep -vE '/test(/|$)'); }
# The short form takes what Go's cache has of packages that have not changed. What a test has a C
# compiler read is not known to Go: the packages with C beside or below them skip a test of which the
# name is a hash of all that, as there is none, and are tested again when it is another.
short() {
	local c p sum all=() with=() without=()
	c=$(find . -name '*.[ch]' -not -path './.git/*' -printf '%h/\n' | sort -u)
	sum=$({ find . -path ./.git -prune -o -type f \( -name '*.[chS]' -o -name Makefile -o -path '*/testdata/*' \) -print0 | sort -z | xargs -0 sha256sum
		cc --version; } | sha256sum)
	mapfile -t all < <(go list -f '{{.Dir}}' ./... | sed "s|^$PWD|.|" | grep -vE '/test(/|$)')
	for p in "${all[@]}"; do
		if grep -qF "$p/" <<<"$c"; then with+=("$p"); else without+=("$p"); fi
	done
	cached "${without[@]}"
	cached -skip "^${sum%% *}\$" "${with[@]}"
}
# cached ARGUMENTS...: as tests, without what keeps go test from its cache.
cached() {
	apart go test -json -vet=off -short -p $((2 * $(nproc))) -parallel $((4 * $(nproc))) -timeout 30m "$@" | "$work/tally" -file "$account"
	judged "${PIPESTATUS[*]}"
}
# having FUNCTION: the folders of the tests that have a function of that name, a pattern. To link and
# start those of the other packages, too, takes a minute.
having() { grep -rlE --include='*_test.go' --exclude-dir=testdata "^func $1\(" . | xargs -n1 dirname | sort -u | sed 's|^\./||'; }
# linked DIRECTORY: sets bin to a package's test without the race detector, which is linked once for
# all that follows.
linked() {
	bin=$work/plain/${1//\//_}
	[ -e "$bin" ] || go test -c -vet=off -ldflags='-s -w' -o "$bin" "./$1"
}
# plainly PATTERN DIRECTORY...: runs tests of packages without the race detector, as many packages at
# once as there are processors.
plainly() {
	local dir status=0
	for dir in "${@:2}"; do
		[ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n || status=1
		plain "$1" "$dir" &
	done
	while [ -n "$(jobs -p)" ]; do wait -n || status=1; done
	return $status
}
plain() {
	local bin
	linked "$2" && apart env -C "$2" "$test2json" -t -p "$(go list -m)/$2" "$work/tally" -file "$account" -cost \
		"$bin" -test.v=test2json -test.paniconexit0 -test.timeout "$(limit)" -test.run "$1" | "$work/tally" -file "$account"
	judged "${PIPESTATUS[*]}"
}
allocations() { plainly Alloc $(having 'Test[A-Za-z0-9_]*Alloc[A-Za-z0-9_]*'); }
models() { plainly 'Model|NoLostWakeUp' $(having 'Test[A-Za-z0-9_]*(Model|NoLostWakeUp)[A-Za-z0-9_]*'); }
# What fails beside the other lanes may pass alone: conclude says so.
benchmarks() { once || echo "$name" >>"$work/slow"; }
once() {
	local dir bin status=0
	for dir in $(having 'Benchmark[A-Za-z0-9_]*'); do
		printf '%s\n' "$dir"
		linked "$dir" && apart env -C "$dir" "$bin" -test.paniconexit0 -test.timeout "$(limit)" -test.run '^$' -test.bench . -test.benchtime 1x || status=1
	done
	return $status
}

# conclude prints what came of it all.
conclude() {
	again
	[ ! -e "$work/slow" ] || step "benchmarks again, of which one failed with other work beside it" once
	printf '\n== end (%ss)\n' "$SECONDS"
	[ "$form" != short ] || [ "$SECONDS" -le "$budget" ] ||
		echo "It took longer than $budget s, the budget of the short form on two quiet cores."
	sort -u "$work/upset" "$work/failed"
	"$work/tally" -file "$account" -sum && [ ! -s "$work/failed" ]
	exit
}

# speed [COMMIT]: builds the commands of a commit and of this tree, and compares them (cmd/dsbench/internal/speed).
speed() {
	local base=${1:-} dir
	[ -n "$base" ] || base=$(git describe --tags --abbrev=0 2>/dev/null) || base=$(git merge-base HEAD main 2>/dev/null) ||
		base=$(git merge-base HEAD origin/main 2>/dev/null) || { echo 'speed: no release tag and no branch main: name a commit' >&2; return 2; }
	base=$(git rev-parse --verify --quiet "$base^{commit}") || { echo "speed: $1 is no commit" >&2; return 2; }
	printf 'base %s\nhead this tree, at %s\n\n' "$(git log -1 --format='%h %s' "$base")" "$(git log -1 --format='%h %s')"
	[ "$base" != "$(git rev-parse HEAD)" ] || [ -n "$(git status --porcelain)" ] || echo 'speed: this tree is that commit: the table shows the noise' >&2
	mkdir "$work/tree" "$work/base" "$work/head" && git archive "$base" | tar -x -C "$work/tree" || return
	(cd "$work/tree" && GOBIN=$work/base go install ./cmd/{dsbench,exn-run,exn-tun}) || return
	GOBIN=$work/head go install ./cmd/{dsbench,exn-run,exn-tun} || return
	go build -o "$work/speed" ./cmd/dsbench/internal/speed || return
	for dir in base head; do # exn-run builds its library before the first run
		"$work/$dir/exn-run" --print-env >/dev/null || return
	done
	"$work/speed" "$work/base" "$work/head"
}
# coverage: each package's share of statements that its own tests run, in their short form.
coverage() {
	go test -short -vet=off -cover -timeout 30m $(go list ./... | grep -vE '/test(/|$)') >"$work/cover" ||
		{ grep -v '^ok' "$work/cover" >&2; return 1; }
	sed -nE 's|^(ok)?[[:space:]]*([^[:space:]]+)[[:space:]].*coverage: ([0-9.]+)%.*|\3 % \2|p' "$work/cover" | sort -n
}
# lines: in files that git knows. Those of the product by what they are for: the first pattern that
# fits a file is its own. Packages whose names end in "test" serve tests.
lines() {
	local tests='_test\.go$|(?<!self)test/|(^|/)(testdata|probes|corpus)/|^internal/explore/|^tools/'
	count() { xargs -r -d '\n' cat | wc "$1"; }
	git ls-files | grep -E '\.(go|[chsS]|sh)$' >"$work/code"
	grep -vP "$tests" "$work/code" | xargs -d '\n' wc -l | awk '
		NR == FNR { name[NR] = $1; sub(/^[^ ]+ +/, ""); pattern[NR] = $0; n = NR; next }
		$2 != "total" { for (i = 1; i < n && $2 !~ pattern[i]; i++); sum[i] += $1 }
		END { for (i = 1; i <= n; i++) { gsub("_", " ", name[i]); printf "%7d %s\n", sum[i], name[i] } }' <(cat <<-'END'
		libfabric ^ports/ofi/|^fabric/link/ofi/|libfabric
		C_programs,_UDP ^directsockets/preload/.*/(dg|epdgram)
		static_and_running_programs ^directsockets/(inject|preload/free)/|exnrun/(inject|stay|keeper)
		C_programs,_TCP ^directsockets/preload/|^cmd/exn-run/|^internal/(elffile|readhook)/
		Go_programs,_UDP ^directsockets/(udp|datagram)/
		Go_programs,_TCP ^directsockets/([^/]*\.go|segment/)|^cmd/exn-go/|^internal/(godirect|mark)/
		containers_and_Kubernetes ^node/agent/|^cmd/exn-cni/|^cmd/exn-tun/internal/(cdi|clustercheck|deviceplugin)|^directsockets/pairing/|^packaging/
		who_talks_directly_to_whom ^directsockets/broker/|^node/rpc/|^internal/rules/
		between_hosts ^directsockets/relay/|^fabric/(emp|identity|link/(stream|wire|attach))/
		memory_of_other_nodes ^memory/|^cmd/exn-mem/
		libvelo2_and_librma2 ^ports/
		LNet ^lnet/
		topologies,_routes_and_their_study ^study/|^cmd/exn-sim/|^fabric/(topo|graph|crossbar|pattern|profile|route|routing)|exntun/(route|topo|profile)
		the_emulated_NIC ^fabric/
		TCP/IP_over_it:_exn0 ^(exteth|exn|napi|arp|multicast|mtu|ipstack)/|^node/(tun|txloop|hostnet|etherhost|capture)/
		a_node_and_its_commands ^node/|^cmd/exn-tun/
		dsbench ^cmd/dsbench/
		shared_by_several .
		END
		) -
	printf '%7d product\n%7d tests\n%7d words of docs\n' "$(grep -vP "$tests" "$work/code" | count -l)" \
		"$(grep -P "$tests" "$work/code" | count -l)" "$(git ls-files 'docs/*.md' | count -w)"
}
case ${1:-} in
speed | coverage | lines) "$@"; exit ;;
esac

if [ "${#install[@]}" -gt 1 ] || [ -z "${CI:-}" ]; then # in CI, .ci/run has installed them
	[ "$form" != short ] || install+=(short)
	if ! "${install[@]}"; then
		[ "${install[1]:-}" != --no-install ] || exit
		echo 'Tests that need what is missing are skipped.'
	fi
fi
[ "$(id -u)" = 0 ] || echo 'Not root: tests that make network namespaces are skipped.'

level
go build -o "$work/tally" ./test/tally || exit
step "formatting" formatting
step "modules" modules
step "README's figures" readme

mkdir "$work/plain"
test2json=$(go tool -n test2json) || exit
analysis() { step "static analysis: go vet's, staticcheck's, and what a mutex guards" lint; }
# They build the commands, which Go's cache does not see.
promises() { step "an end-to-end test of each promise" tests -short -timeout "$(limit)" ./test; }

printf '\n== the short form (%ss)\n' "$SECONDS"
beside analysis
beside promises
step "tests, short" short
joined
[ "$form" != short ] || conclude

# What the short form skipped, the full one runs: each has an account of its own.
again
"$work/tally" -file "$account" -sum || echo "the short form" >>"$work/failed"
account=$work/full
if [ "$form" = nightly ]; then
	export EXNET_NIGHTLY=1 FUZZTIME=${FUZZTIME:-20s} SOAKTIME=${SOAKTIME:-5m}
fi

# Four lanes beside each other, of which each does one thing after the other.
programs() {
	step "programs of others, with their data checked" tests -timeout "$(limit)" ./test/suites -rounds 2
	step "soak for ${SOAKTIME:=30s}" tests -timeout "$(limit)" ./test/soak -soak.time "$SOAKTIME"
	step "kill matrix, reduced" tests -timeout "$(limit)" ./test/killmatrix
	step "tests under pressure" tests -timeout "$(limit)" ./test/pressure
	step "end-to-end tests of exn-run" tests -timeout "$(limit)" -run '^TestRootRun' ./test
}
# The end-to-end tests run real programs against timeouts of theirs, and the
# race detector has nothing to find there that the packages' own tests do not.
nodes() { step "end-to-end tests" tests -timeout "$(limit)" -skip '^TestRootRun' ./test; }
others() {
	step "allocation budgets, which the race detector would upset" allocations
	step "shellcheck and cppcheck" analysers
	step "prose: vale's rules of docs/.vale.ini" prose
	step "models, in which the race detector has nothing to find" models
	step "every benchmark once" benchmarks
	step "every fuzz target for ${FUZZTIME:=300ms}" apart ./test/fuzz.sh -time "$FUZZTIME" -jobs 1 -blind -linked "$work/plain"
}
beside programs
beside nodes
beside others
step "tests, with the race detector" raced
joined
conclude
