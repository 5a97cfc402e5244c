#!/usr/bin/env bash
# Boots a virtual machine for arm64 (qemu, without KVM) and runs the tests of package inject in it: programs
# without a C library get the library, as they start and while they run. It takes some minutes.
#
#   test/arm64vm.sh [EXPRESSION]    go test's -run
#
# The kernel, busybox and musl are Debian's, downloaded and unpacked into $ARM64 once; this host's packages stay
# as they are.
set -euo pipefail
cd "$(dirname "$0")/../directsockets/inject"
for tool in qemu-system-aarch64:qemu-system-arm aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu cpio:cpio; do
	command -v "${tool%%:*}" >/dev/null || { echo "arm64vm.sh: there is no ${tool%%:*}: apt-get install ${tool#*:}" >&2; exit 1; }
done
[ -e /usr/aarch64-linux-gnu/lib/libc.a ] || { echo 'arm64vm.sh: there is no libc.a: apt-get install libc6-dev-arm64-cross' >&2; exit 1; }
arm64=${ARM64:-${TMPDIR:-/tmp}/exnet-arm64}
if [ ! -e "$arm64/ready" ]; then
	mkdir -p "$arm64"/{state/lists/partial,cache/archives/partial,debs}
	apt=(apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$arm64/state" -o Dir::State::status=/dev/null -o Dir::Cache="$arm64/cache")
	"${apt[@]}" update
	kernel=$(apt-cache "${apt[@]:2}" search --names-only '^linux-image-[0-9.-]+-cloud-arm64-unsigned$' | awk '{print $1}' | sort -V | tail -1)
	(cd "$arm64/debs" && "${apt[@]}" download "$kernel" busybox-static musl musl-dev)
	for deb in "$arm64"/debs/*.deb; do
		dpkg -x "$deb" "$arm64/root"
	done
	touch "$arm64/ready"
fi
vm=$(mktemp -d)
trap 'rm -rf "$vm"' EXIT
mkdir -p "$vm"/root/{b,bin,proc,sys,dev,tmp,run}
cp "$arm64/root/bin/busybox" "$vm/root/bin/"

# What the tests build by themselves elsewhere.
b=$vm/root/b
export GOARCH=arm64 CGO_ENABLED=0 GOFLAGS=
cc=aarch64-linux-gnu-gcc
go test -c -o "$b/inject.test" .
go build -o "$b/go-static" testdata/goprogram/main.go
go build -o "$b/go-stripped" '-ldflags=-s -w' testdata/goprogram/main.go
go build -o "$b/go-pie" -buildmode=pie testdata/goprogram/main.go
go build -o "$b/go-strippedpie" -buildmode=pie '-ldflags=-s -w' testdata/goprogram/main.go
$cc -O2 -Wall -Werror -fPIC -ffreestanding -nostdlib -shared -fvisibility=hidden -fno-stack-protector -mgeneral-regs-only \
	-Wl,-Bsymbolic -Wl,-z,norelro -o "$b/hook.so" testdata/hook.c
$cc -O2 -Wall -o "$b/c-glibc" testdata/cprogram/main.c -pthread -static
$cc -O2 -Wall -o "$b/c-glibcpie" testdata/cprogram/main.c -pthread -static-pie
musl=$arm64/root/usr lib=$arm64/root/usr/lib/aarch64-linux-musl
for kind in O2:musl O0:muslO0; do
	$cc -"${kind%%:*}" -Wall -mno-outline-atomics -nostdinc -isystem "$musl/include/aarch64-linux-musl" -isystem "$($cc -print-file-name=include)" \
		-nostdlib -static -o "$b/c-${kind#*:}" "$lib/crt1.o" "$lib/crti.o" testdata/cprogram/main.c "$lib/libc.a" "$($cc -print-libgcc-file-name)" "$lib/crtn.o"
done

cat >"$vm/root/init" <<-END
	#!/bin/busybox sh
	/bin/busybox --install -s /bin
	export PATH=/bin TMPDIR=/tmp EXN_TEST_BUILT=/b
	mount -t proc proc /proc
	mount -t sysfs sys /sys
	mount -t devtmpfs dev /dev
	ip link set lo up
	cd /b
	./inject.test -test.short -test.v -test.timeout 30m -test.run '${1:-.}'
	echo "inject.test: \$?"
	poweroff -f
END
chmod +x "$vm/root/init"
(cd "$vm/root" && find . | cpio -o -H newc --quiet) >"$vm/initramfs"
timeout 40m qemu-system-aarch64 -M virt -cpu max,pauth-impdef=on -smp 2 -m 2G -accel tcg,thread=multi -nographic -net none -no-reboot \
	-kernel "$arm64"/root/boot/vmlinuz-* -initrd "$vm/initramfs" -append 'console=ttyAMA0 quiet panic=-1' </dev/null | tee "$vm/log"
grep -q '^inject.test: 0' "$vm/log"
