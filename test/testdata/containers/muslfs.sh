#!/usr/bin/env bash
# muslfs.sh DIR makes a root file system of musl and pinger.
set -euo pipefail
mkdir -p "$1"/{dev,etc,lib,proc,run,sys,tmp}
musl-gcc -O1 -Wall -Wextra -Werror "${0%/*}/pinger.c" -o "$1/pinger"
linker=$(readelf -p .interp "$1/pinger" | grep -o '/lib/ld-musl.*')
cp -L "$linker" "$1$linker"
