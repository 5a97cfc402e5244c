#!/usr/bin/env bash
# release.sh builds what users install: the commands, the preload library, man pages,
# completions, and of these a tarball, a .deb and a .rpm (by nfpm) for each architecture.
#
#   ./release.sh [--version VERSION] [--arch ARCH]... [DIR]
#
# DIR is where the packages go (default: dist). ARCH is amd64 or arm64; left out: this
# machine's, and the other one if its C compiler is here (aarch64-linux-gnu-gcc,
# x86_64-linux-gnu-gcc). VERSION is left out: git describe. A library for programs with musl
# is built, too: by musl-gcc, and for the other architecture with musl as Debian has it, which apt-get
# downloads. The plugin of nbdkit is left out where nbdkit-plugin.h is not (nbdkit-plugin-dev).
#
# Beside the packages DIR gets SHA256SUMS, and for each architecture a list of all modules in its
# commands (.sbom.txt). Two runs for one commit and version make the same bytes: all times are
# SOURCE_DATE_EPOCH, or if that is not set the commit's. packaging/apt.sh makes a repository of DIR.
set -Eeuo pipefail
{ # which bash reads whole, before it runs any of it: a checkout may change this file meanwhile
# What ends the script is named, also where a program that failed says nothing itself.
trap 'printf "release.sh: line %s ended with status %s: %s\n" "$LINENO" "$?" "$BASH_COMMAND" >&2' ERR
cd "$(dirname "$0")"

nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0
fail() { printf 'release.sh: %s\n' "$*" >&2; exit 2; }

version='' out='' arches=()
while [ $# -gt 0 ]; do
	case $1 in
	--version) version=${2:-}; [ -n "$version" ] || fail '--version needs a version'; shift ;;
	--arch) arches+=("${2:-}"); [[ ${2:-} =~ ^(amd64|arm64)$ ]] || fail "architecture '${2:-}': use amd64 or arm64"; shift ;;
	-h | --help) sed -n '2,15s/^# \{0,1\}//p' release.sh; exit ;;
	-*) fail "unknown flag $1: use --version, --arch" ;;
	*) [ -z "$out" ] || fail "one folder is enough: $out or $1?"; out=$1 ;;
	esac
	shift
done
: "${out:=dist}"
: "${version:=$(git describe --tags --always --dirty 2>/dev/null || echo 0.0.0)}"
version=${version#v}
[[ $version =~ ^[0-9]+\.[0-9]+ ]] || version=0.0.0+$version
[[ $version =~ ^[0-9A-Za-z.+~-]+$ ]] || fail "version $version: use letters, digits, dots, +, ~ and -"

# What makes two runs alike: times, umask, and the order and names of files.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)} LC_ALL=C TZ=UTC
umask 022

host=$(go env GOHOSTARCH)
# compiler ARCH prints the C compiler for an architecture.
compiler() {
	[ "$1" = "$host" ] && { echo "${CC:-cc}"; return; }
	case $1 in
	arm64) echo aarch64-linux-gnu-gcc ;;
	amd64) echo x86_64-linux-gnu-gcc ;;
	esac
}
# triplet ARCH prints what Debian calls the architecture in paths.
triplet() { case $1 in arm64) echo aarch64-linux-gnu ;; amd64) echo x86_64-linux-gnu ;; esac; }
if [ ${#arches[@]} -eq 0 ]; then
	for a in amd64 arm64; do
		if command -v "$(compiler $a)" >/dev/null; then arches+=("$a"); else echo "release.sh: left out $a: there is no $(compiler $a)"; fi
	done
fi

# muslFor ARCH DIR puts the headers and libraries of Debian's musl into DIR.
muslFor() {
	local lists=$2/apt options
	mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial" "$2/root"
	options=(-qq -o "APT::Architecture=$1" -o "APT::Architectures=$1" -o "Dir::State::lists=$lists/lists"
		-o "Dir::Cache=$lists/cache" -o Dir::State::status=/dev/null -o Acquire::Retries=3 -o APT::Sandbox::User=root)
	apt-get "${options[@]}" update && (cd "$2" && apt-get "${options[@]}" download musl-dev musl) || return
	for deb in "$2"/*.deb; do dpkg-deb -x "$deb" "$2/root" || return; done
	ln -s "$2"/root/usr/include/*-linux-musl "$2/include"
	ln -s "$2"/root/usr/lib/*-linux-musl "$2/lib"
}
# musl ARCH CC DIR builds the library for musl into DIR; without musl it says so.
musl() {
	local args=() dir=$work/$1-musl
	if [ "$1" != "$host" ]; then
		command -v apt-get >/dev/null && muslFor "$1" "$dir" >"$work/musl.log" 2>&1 ||
			{ echo "release.sh: left out $1's library for musl: $(tail -1 "$work/musl.log" 2>/dev/null)"; return; }
		args=("CC=$2" "MUSL=$dir" "KERNELHEADERS=/usr/$("$2" -dumpmachine)/include")
	elif ! command -v musl-gcc >/dev/null; then
		echo "release.sh: left out $1's library for musl: there is no musl-gcc"
		return
	fi
	make -s -C directsockets/preload LIBC=musl BUILD="$dir/build" CFLAGS=-O2 "${args[@]}"
	mkdir -p "$3" && cp "$dir/build/libexnds.so" "$3/"
}

# provider ARCH CC DIR builds the provider of libfabric into DIR; without libfabric it says so.
provider() {
	mkdir -p "$3"
	if [ "$1" != "$host" ] || ! echo 'int main(void) { return 0; }' |
		"$2" -xc - -include rdma/fabric.h -lfabric -o "$work/libfabric-is-here" 2>/dev/null; then
		echo "release.sh: left out $1's provider of libfabric: there is no libfabric-dev for it"
		return
	fi
	make -s -C ports/ofi BUILD="$work/$1-ofi" CC="$2" CFLAGS=-O2
	cp "$work/$1-ofi/libexnet-fi.so" "$3/"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
say() { printf 'release.sh: %s (%ss)\n' "$*" "$SECONDS"; }
say "version $version for ${arches[*]}: manual pages and completions"
ldflags="-s -w -X exnet/internal/version.release=$version"
go build -ldflags "$ldflags" -o "$work/host/" ./cmd/... # to write the pages with

# What does not depend on the architecture.
share=$work/share
mkdir -p "$share"/{man,bash,fish,zsh,docs}
cp -r docs/*.md docs/*.svg docs/exn.toml docs/design "$share/docs/"
mkdir "$share/docs/results" && cp docs/results/[a-z]*.md "$share/docs/results/"
for c in exn-tun dsbench exn-go exn-mem exn-sim; do
	"$work/host/$c" man "$share/man" >/dev/null
	for s in bash fish zsh; do "$work/host/$c" completion $s >"$share/$s/$c"; done
done
"$work/host/exn-run" --man >"$share/man/exn-run.1"
"$work/host/exn-cni" man >"$share/man/exn-cni.1"
for s in bash fish zsh; do "$work/host/exn-run" --completion $s >"$share/$s/exn-run"; done
for s in fish zsh; do
	for f in "$share/$s"/*; do
		if [ $s = fish ]; then mv "$f" "$f.fish"; else mv "$f" "$share/$s/_${f##*/}"; fi
	done
done
gzip -9n "$share"/man/*.1

for arch in "${arches[@]}"; do
	cc=$(compiler "$arch")
	command -v "$cc" >/dev/null || fail "there is no $cc: install it, or leave out --arch $arch"
	root=$work/$arch
	mkdir -p "$root/bin" "$root/lib"
	say "$arch: commands"
	for c in exn-tun exn-run exn-go exn-mem exn-sim exn-cni dsbench; do
		CGO_ENABLED=0 GOARCH=$arch go build -trimpath -ldflags "$ldflags" -o "$root/bin/$c" "./cmd/$c"
	done
	say "$arch: libraries in C"
	make -s -C directsockets/preload BUILD="$work/$arch-c" CC="$cc" CFLAGS=-O2
	make -s -C memory/pager/preload BUILD="$work/$arch-c" CC="$cc" CFLAGS=-O2
	make -s -C ports/lib BUILD="$work/$arch-ports" CC="$cc" CFLAGS=-O2
	make -s -C ports/lib BUILD="$work/$arch-ports" CC="$cc" CFLAGS=-O2 "$work/$arch-ports/exn-pingpong"
	make -s -C memory/c BUILD="$work/$arch-ocm" CC="$cc" CFLAGS=-O2 ocm
	make -s -C directsockets/preload free BUILD="$work/$arch-c" CC="$cc" CFLAGS=-O2
	cp "$work/$arch-c"/libexn{ds,ds-free,mem}.so "$work/$arch-ports"/lib*.so "$work/$arch-ocm/libocm.so" "$root/lib/"
	cp "$work/$arch-ports/exn-pingpong" "$root/lib/" # of dsbench ports
	mkdir -p "$root/nbdkit"
	if [ -f /usr/include/nbdkit-plugin.h ]; then
		make -s -C memory/c BUILD="$root/nbdkit" CC="$cc" CFLAGS='-O2 -idirafter /usr/include'
	else
		echo 'release.sh: left out the plugin of nbdkit: there is no nbdkit-plugin.h (nbdkit-plugin-dev)'
	fi
	musl "$arch" "$cc" "$root/lib/musl"
	provider "$arch" "$cc" "$root/libfabric"
	say "$arch: packages"
	# A tarball, to be unpacked below /usr or anywhere else: exn-run finds the library beside itself.
	top=exnet-$version-linux-$arch
	mkdir -p "$work/tar/$top"
	cp -r "$root"/bin/* "$root"/lib/* "$root"/libfabric packaging/ld.so.preload LICENSE CHANGELOG.md README.md "$work/tar/$top/"
	cp -r "$share" "$work/tar/$top/share"
	mv "$work/tar/$top/share/docs" "$work/tar/$top/docs"
	cp -r packaging "$work/tar/$top/packaging"
	cp -r "$root/nbdkit" "$work/tar/$top/nbdkit"
	cp -r ports/lib/include "$work/tar/$top/include"
	cp memory/c/include/*.h "$work/tar/$top/include/"
	mkdir "$work/tar/$top/pkgconfig"
	for pc in ports/lib/rma2 ports/lib/velo2 memory/c/ocm; do # of where the tarball is unpacked
		sed -e 's#^libdir=.*#libdir=${pcfiledir}/..#' -e 's#^includedir=.*#includedir=${pcfiledir}/../include#' \
			"$pc.pc" >"$work/tar/$top/pkgconfig/${pc##*/}.pc"
	done
	tar -C "$work/tar" --owner 0 --group 0 --numeric-owner --sort name --mtime "@$SOURCE_DATE_EPOCH" --mode u+w,go-w -cf - "$top" |
		gzip -9n >"$out/$top.tar.gz"
	(cd "$root/bin" && go version -m -- *) >"$out/$top.sbom.txt"
	for kind in deb rpm; do
		VERSION=$version ARCH=$arch ROOT=$root SHARE=$share TRIPLET=$(triplet "$arch") go run "$nfpm" package --config packaging/nfpm.yaml --packager $kind --target "$out/"
	done
done
(cd "$out" && sha256sum -- exnet[-_]"$version"*) >"$work/SHA256SUMS" # not of what another release left
mv "$work/SHA256SUMS" "$out/"
say "made in $out:"
ls -l "$out"
for f in "$out"/exnet_"$version"*_"$host".deb; do
	[ ! -e "$f" ] || printf 'Install it on Debian: apt-get install %s\n' "$(realpath "$f")"
done
printf 'Elsewhere: the .rpm, or the tarball, which runs from any folder. Then: exn-tun doctor\n'
exit
}
