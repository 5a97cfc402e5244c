# What the scripts of this folder share. One begins with
#   . "${0%/*}/lib.sh"
# defines serve, check and perhaps load, and ends with
#   run "$@"
# They run in a folder of their own, serve and check at the same time.
set -euo pipefail
unset EXNET_REPORT

# run FUNCTION FRONT BACK OTHER SIZE: ports, and how much larger than on other days a load is to be.
run() {
	PORT=$2 BACK=$3 OTHER=$4 SIZE=$5
	PATH=$PATH:/usr/sbin:/sbin:/usr/games
	export PORT BACK OTHER SIZE
	"$1"
}

# random NAME BYTES: makes a file of random bytes, once.
random() { [ -e "$1" ] || { head -c "$2" /dev/urandom > "$1.new" && mv "$1.new" "$1"; }; }

# same A B: fails unless both have the same bytes.
same() { cmp "$1" "$2" || { echo "$1 is not $2: $(wc -c < "$1") of $(wc -c < "$2") bytes"; exit 1; }; }

# equal GOT WANT: fails unless both are the same text.
equal() { [ "$1" = "$2" ] || { echo "got ${1:0:300}, want ${2:0:300}"; exit 1; }; }

# until_ok COMMAND...: repeats it until it succeeds.
until_ok() {
	for _ in $(seq 600); do
		if "$@" > until_ok.out 2>&1; then return 0; fi
		sleep 0.1
	done
	echo "never: $*"
	cat until_ok.out
	exit 1
}

# listens PORT: waits for somebody that listens there.
listens() { until_ok eval "ss -Hltn 'sport = :$1' | grep -q ."; }

# servers: waits for what runs in the background, and ends it when it is told to end.
servers() {
	trap 'trap - TERM; kill $(jobs -p) 2> /dev/null || true; wait || true; exit 0' TERM
	wait || true
	echo "the servers have ended"
	exit 1
}
