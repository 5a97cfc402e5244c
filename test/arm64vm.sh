#!/usr/bin/env bash
# Boots a virtual machine for arm64 (qemu, without KVM) and runs the tests of static programs in it: those of package
# inject, and exn-run's with the real library. It takes an hour.
#
#   test/arm64vm.sh [EXPRESSION]    go test's -run
#
# The kernel, busybox, musl and a shell are Debian's, downloaded and unpacked into $ARM64 once; this host's packages stay
# as they are.
set -euo pipefail
cd "$(dirname "$0")/../directsockets/inject"
for tool in qemu-system-aarch64:qemu-system-arm aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu cpio:cpio; do
	command -v "${tool%%:*}" >/dev/null || { echo "arm64vm.sh: there is no ${tool%%:*}: apt-get install ${tool#*:}" >&2; exit 1; }
done
libc=/usr/aarch64-linux-gnu/lib
[ -e $libc/libc.a ] || { echo 'arm64vm.sh: there is no libc.a: apt-get install libc6-dev-arm64-cross' >&2; exit 1; }
arm64=${ARM64:-${TMPDIR:-/tmp}/exnet-arm64}
if [ ! -e "$arm64/ready" ]; then
	mkdir -p "$arm64"/{state/lists/partial,cache/archives/partial,debs}
	apt=(-q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$arm64/state" -o Dir::State::status=/dev/null
		-o Dir::Cache="$arm64/cache" -o APT::Sandbox::User=root)
	apt-get "${apt[@]}" update
	kernel=$(apt-cache "${apt[@]}" search --names-only '^linux-image-[0-9.-]+-cloud-arm64-unsigned$' | awk '{print $1}' | sort -V | tail -1)
	(cd "$arm64/debs" && apt-get "${apt[@]}" download "$kernel" busybox-static coreutils dash musl musl-dev)
	for deb in "$arm64"/debs/*.deb; do
		dpkg -x "$deb" "$arm64/root"
	done
	touch "$arm64/ready"
fi
vm=$(mktemp -d)
trap 'rm -rf "$vm"' EXIT
mkdir -p "$vm"/root/{b,bin,proc,sys,dev,tmp,run,root,lib/aarch64-linux-gnu}
cp "$arm64/root/bin/busybox" "$vm/root/bin/"
# A shell and a program that load the library, unlike busybox.
cp "$arm64/root/bin/dash" "$arm64/root/usr/bin/env" "$vm/root/b/"
cp -L $libc/ld-linux-aarch64.so.1 "$vm/root/lib/"
cp -L $libc/lib{c,m}.so.6 "$vm/root/lib/aarch64-linux-gnu/"
find "$arm64/root/lib/modules" '(' -name inet_diag.ko -o -name tcp_diag.ko ')' -exec cp {} "$vm/root/" ';'

# What the tests build by themselves elsewhere: each under the name that the compilers below look for.
b=$vm/root/b
export GOARCH=arm64 CGO_ENABLED=0 GOFLAGS=
cc=aarch64-linux-gnu-gcc
go test -c -o "$b/inject.test" .
go test -c -o "$b/exnrun.test" ../../cmd/exn-run/exnrun
for pie in '' -pie; do
	go build -o "$b/go-goprogram$pie" ${pie:+-buildmode=pie} testdata/goprogram/main.go
	go build -o "$b/go-goprogram-s$pie" ${pie:+-buildmode=pie} '-ldflags=-s -w' testdata/goprogram/main.go
	$cc -O2 -Wall -o "$b/cc-cprogram$pie" testdata/cprogram/main.c -pthread "-static$pie"
done
go build -o "$b/go-gothreads-s" '-ldflags=-s -w' testdata/gothreads/main.go
$cc -O2 -Wall -Werror -fPIC -ffreestanding -nostdlib -shared -fvisibility=hidden -fno-stack-protector -mgeneral-regs-only \
	-Wl,-Bsymbolic -Wl,-z,norelro -I../preload -o "$b/cc-hook.c" ../preload/free/{trace,boot}.c testdata/hook.c
$cc -shared -nostdlib -o "$b/cc--" -x c - <<<'extern int x(void); int y(void) { return x(); }'
musl=$arm64/root/usr lib=$arm64/root/usr/lib/aarch64-linux-musl
for level in O2: O0:-O0; do
	$cc -"${level%%:*}" -Wall -mno-outline-atomics -nostdinc -isystem "$musl/include/aarch64-linux-musl" -isystem "$($cc -print-file-name=include)" \
		-nostdlib -static -o "$b/musl-gcc-cprogram${level#*:}" "$lib/crt1.o" "$lib/crti.o" testdata/cprogram/main.c "$lib/libc.a" \
		"$($cc -print-libgcc-file-name)" "$lib/crtn.o"
done
make -s -j2 -C ../preload CC=$cc CFLAGS=-O2 BUILD="$vm/c" all free
cp "$vm"/c/libexnds*.so "$b/"
cat >"$b/compiler" <<-'END'
	#!/bin/busybox sh
	# Stands for a compiler: what it would make was built elsewhere.
	for a; do
		case $a in
		*/main.c | */main.go) source=${a%/*} ;;
		*.c | -) source=$a ;;
		*' -w') stripped=-s ;;
		-*pie) pie=-pie ;;
		-O0) level=-O0 ;;
		esac
		[ "$last" != -o ] || out=$a
		last=$a
	done
	exec cp "/b/${0##*/}-${source##*/}$stripped$pie$level" "$out"
END
chmod +x "$b/compiler"

cat >"$vm/root/init" <<-END
	#!/bin/busybox sh
	/bin/busybox --install -s /bin
	export PATH=/bin TMPDIR=/tmp HOME=/root
	mount -t proc proc /proc
	mount -t sysfs sys /sys
	mount -t devtmpfs dev /dev
	mkdir /dev/shm
	mount -t tmpfs shm /dev/shm
	ip link set lo up
	insmod /inet_diag.ko
	insmod /tcp_diag.ko
	for compiler in cc go musl-gcc; do ln -s /b/compiler /bin/\$compiler; done
	ln -sf /b/dash /bin/sh
	ln -sf /b/env /bin/env
	cd /b
	./inject.test -test.short -test.v -test.timeout 40m -test.run '${1:-.}'
	echo "inject.test: \$?"
	./exnrun.test -test.short -test.v -test.timeout 20m -test.run '${1:-Static|PreloadedPIE}'
	echo "exnrun.test: \$?"
	poweroff -f
END
chmod +x "$vm/root/init"
(cd "$vm/root" && find . | cpio -o -H newc --quiet) >"$vm/initramfs"
timeout 60m nice qemu-system-aarch64 -M virt -cpu max,pauth-impdef=on -smp 2 -m 2G -accel tcg,thread=multi -nographic -net none -no-reboot \
	-kernel "$arm64"/root/boot/vmlinuz-* -initrd "$vm/initramfs" -append 'console=ttyAMA0 quiet panic=-1' </dev/null | tee "$vm/log"
grep -q '^inject.test: 0' "$vm/log"
grep -q '^exnrun.test: 0' "$vm/log"
