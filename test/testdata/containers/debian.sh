#!/usr/bin/env bash
# debian.sh DIR RELEASE PACKAGE...: makes DIR a root file system with packages of a release of Debian and what they
# depend on, unpacked, not configured; from the mirror and by the keyring of this host, whose own packages stay as
# they are. DIR is there only if all went well.
set -euo pipefail
dir=$1 release=$2
shift 2
list=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' 'Component: main' 'Created-By: Packages')
read -r mirror <<<"$list"
[ -n "$mirror" ] || { echo "apt has no list of Debian's packages here: run apt-get update, on Debian" >&2; exit 1; }
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || { echo "there is no $keyring: install debian-archive-keyring" >&2; exit 1; }
mkdir -p "${dir%/*}"
work=$(mktemp -d "$dir.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{root,lists/partial,archives/partial}
touch "$work/status"
echo "deb [signed-by=$keyring] $mirror $release main" >"$work/sources.list"
cat >"$work/apt.conf" <<END
Dir::State "$work";
Dir::State::status "$work/status";
Dir::Cache "$work";
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "-";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
END
export APT_CONFIG=$work/apt.conf DEBIAN_FRONTEND=noninteractive
apt-get -qq -o APT::Update::Error-Mode=any update
apt-get -qq -y --download-only install base-files base-passwd bash coreutils dash findutils grep mawk mount sed tar util-linux "$@"
for package in "$work"/archives/{base-files_*,*}.deb; do # base-files has /bin, /lib and /sbin, which are links
	dpkg-deb -x "$package" "$work/root"
done
cd "$work/root"
cp usr/share/base-passwd/passwd.master etc/passwd
cp usr/share/base-passwd/group.master etc/group
link() { [ ! -e "$1" ] || [ -e "$2" ] || ln -s "${1##*/}" "$2"; } # as scripts of the packages do
rm -rf var/run var/lock && ln -s /run var/run && ln -s /run/lock var/lock
link usr/bin/dash usr/bin/sh
link usr/bin/mawk usr/bin/awk
for name in iptables ip6tables; do
	for end in '' -save -restore; do link usr/sbin/$name-nft$end usr/sbin/$name$end; done
done
echo '127.0.0.1 localhost' >etc/hosts
ldconfig -r .
mv "$work/root" "$dir"
