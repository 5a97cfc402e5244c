#!/usr/bin/env bash
# apt.sh makes a repository for apt of the packages that release.sh has made, as files that any web server
# can serve.
#
#   packaging/apt.sh [--key FILE | --unsigned] DIST REPO
#
# DIST is release.sh's folder, REPO the repository's, which is made anew. The signature is by the secret
# key in FILE (by default apt-key.asc beside REPO, made if it is not there yet: keep it, as users trust its
# public half, REPO/exnet.gpg). A user's source is one of
#
#   deb [signed-by=/usr/share/keyrings/exnet.gpg] https://HOST/PATH stable main
#   deb [trusted=yes] https://HOST/PATH stable main
#
# the second one of an unsigned repository. It needs apt-utils, and gpg with gpg-agent to sign.
set -Eeuo pipefail
trap 'printf "apt.sh: line %s ended with status %s: %s\n" "$LINENO" "$?" "$BASH_COMMAND" >&2' ERR
fail() { printf 'apt.sh: %s\n' "$*" >&2; exit 2; }

key='' sign=yes dirs=()
while [ $# -gt 0 ]; do
	case $1 in
	--key) key=${2:-}; [ -n "$key" ] || fail '--key needs a file'; shift ;;
	--unsigned) sign= ;;
	-h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit ;;
	-*) fail "unknown flag $1: use --key or --unsigned" ;;
	*) dirs+=("$1") ;;
	esac
	shift
done
[ ${#dirs[@]} -eq 2 ] || fail 'name two folders: that of release.sh, and that of the repository'
[ -z "$key" ] || [ -n "$sign" ] || fail '--key and --unsigned exclude each other'
dist=${dirs[0]} repo=${dirs[1]%/}
debs=("$dist"/*.deb)
[ -e "${debs[0]}" ] || fail "there is no .deb in $dist: run release.sh first"
[ ! -e "$repo" ] || [ -d "$repo/dists" ] || [ -z "$(ls -A "$repo")" ] || fail "$repo is not a repository: name another folder"
: "${key:=$(dirname "$repo")/apt-key.asc}"
need() { command -v "$1" >/dev/null || fail "there is no $1: install $2"; }
need apt-ftparchive apt-utils
[ -z "$sign" ] || { need gpg gpg; need gpg-agent gpg-agent; }
umask 022

work=$(mktemp -d)
# What ends the script ends the agent that gpg has started, too.
trap '[ ! -d "$work/gpg" ] || GNUPGHOME=$work/gpg gpgconf --kill all; rm -rf "$work"' EXIT
new=$work/repo
mkdir -p "$new/pool/main"
arches=()
for deb in "${debs[@]}"; do # apt-ftparchive --arch goes by the names
	arch=$(dpkg-deb -f "$deb" Architecture)
	cp "$deb" "$new/pool/main/$(dpkg-deb -f "$deb" Package)_$(dpkg-deb -f "$deb" Version)_$arch.deb"
	arches+=("$arch")
done
mapfile -t arches < <(printf '%s\n' "${arches[@]}" | sort -u)
for arch in "${arches[@]}"; do
	dir=dists/stable/main/binary-$arch
	mkdir -p "$new/$dir"
	(cd "$new" && apt-ftparchive --arch "$arch" packages pool/main) >"$new/$dir/Packages"
	gzip -9nk "$new/$dir/Packages"
done
apt-ftparchive -o APT::FTPArchive::Release::Origin=exnet -o APT::FTPArchive::Release::Label=exnet \
	-o APT::FTPArchive::Release::Suite=stable -o APT::FTPArchive::Release::Codename=stable \
	-o APT::FTPArchive::Release::Components=main -o "APT::FTPArchive::Release::Architectures=${arches[*]}" \
	release "$new/dists/stable" >"$work/Release"
mv "$work/Release" "$new/dists/stable/"

if [ -n "$sign" ]; then
	export GNUPGHOME=$work/gpg
	mkdir -m 700 "$GNUPGHOME"
	gpg=(gpg --batch --quiet --no-tty --pinentry-mode loopback --passphrase '')
	if [ -e "$key" ]; then
		"${gpg[@]}" --import "$key"
	else
		"${gpg[@]}" --quick-generate-key 'exnet packages' ed25519 sign never
		(umask 077 && "${gpg[@]}" --armor --export-secret-keys >"$key")
		echo "apt.sh: made the key $key: keep it, and keep it secret"
	fi
	"${gpg[@]}" --export >"$new/exnet.gpg"
	"${gpg[@]}" --clearsign -o "$new/dists/stable/InRelease" "$new/dists/stable/Release"
	"${gpg[@]}" --armor --detach-sign -o "$new/dists/stable/Release.gpg" "$new/dists/stable/Release"
fi
rm -rf "$repo"
mkdir -p "$(dirname "$repo")"
cp -r "$new" "$repo"
(cd "$repo" && find . -type f | sort)
