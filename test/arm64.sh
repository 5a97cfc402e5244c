#!/usr/bin/env bash
# Runs the tests of Go packages for arm64, under Debian's qemu-user-static, which this user namespace's
# binfmt_misc knows (Linux 6.7): processes that a test starts anew run, too.
#
#   test/arm64.sh [PACKAGE...]
#
# Without packages: all whose tests need no broker. A broker wants SO_NETNS_COOKIE, and the library's
# connections want TCP_INFO, of which qemu-user 7.2 knows neither. Tests that need root are left out,
# and TestRegisterPages, for whose second mapping of the same pages qemu-user has no memory.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# = 0 ]; then
	set -- ./arp ./exn ./exteth ./fabric/... ./foreign ./cmd/exn-sim/exnsim ./internal/{cli,counter,rules,shm,stats,svgplot} ./node/{capture,etherhost} \
		./ipstack ./mtu ./multicast ./napi ./study/...
fi
emulator=$(command -v qemu-aarch64-static) || { echo 'arm64.sh: there is no qemu-aarch64-static: apt-get install qemu-user-static' >&2; exit 1; }
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
exec unshare --user --map-root-user --mount --net bash -euc '
	mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
	echo "$1" >/proc/sys/fs/binfmt_misc/register
	ip link set lo up
	shift
	GOARCH=arm64 CGO_ENABLED=0 exec go test -short -timeout 60m -skip "^(TestRoot.*|TestRegisterPages)\$" "$@"
' arm64 ":exnet-arm64:M::$magic:$mask:$emulator:F" "$@"
