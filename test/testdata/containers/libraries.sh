#!/usr/bin/env bash
# libraries.sh DIR puts the libraries and the file of ld.so.preload into DIR, as a package has them.
set -euo pipefail
top=$(cd "${0%/*}/../../.." && pwd) build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
make -s -C "$top/directsockets/preload" BUILD="$build/glibc" CFLAGS=-O2
make -s -C "$top/directsockets/preload" LIBC=musl BUILD="$build/musl" CFLAGS=-O2
mkdir -p "$1/musl"
cp "$build/glibc/libexnds.so" "$top/packaging/ld.so.preload" "$1/"
cp "$build/musl/libexnds.so" "$1/musl/"
