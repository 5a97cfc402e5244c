#!/usr/bin/env bash
# Installs the Debian packages of packages.txt that are not there, as root or by sudo. What cannot
# be had is named; the status is 1 then.
#
#   test/install.sh [short]               installs them; short: those of the short form of check.sh
#   test/install.sh --no-install [short]  says which are missing, and fails if any is
set -uo pipefail
cd "$(dirname "$0")" || exit

look=
if [ "${1:-}" = --no-install ]; then
	look=yes
	shift
fi
case ${1:-} in
'' | short) ;;
*) echo "install.sh: unknown argument $1: use --no-install, short, or none" >&2; exit 2 ;;
esac
mapfile -t missing < <(./missing.sh "$@")
[ ${#missing[@]} -gt 0 ] || exit 0
if [ -n "$look" ]; then
	printf 'Missing: to install them:\n  apt-get install %s\n' "${missing[*]}" >&2
	exit 1
fi

sudo=
if [ "$(id -u)" != 0 ]; then
	sudo=sudo
	command -v sudo >/dev/null || { printf 'install.sh: neither root nor sudo: as root run\n  apt-get install %s\n' "${missing[*]}" >&2; exit 1; }
fi

# again COMMAND...: runs it up to four times, as mirrors and networks are away at times.
again() {
	local pause
	for pause in 5 15 45 0; do
		"$@" && return
		echo "install.sh: failed: $*" >&2
		sleep "$pause"
	done
	return 1
}

# policy-rc.d would be cleaner, but this needs no file outside the checkout:
# RUNLEVEL=1 keeps the packages from starting their servers.
install() {
	$sudo env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
		-o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"
}
again $sudo apt-get update -qq -o Acquire::Retries=3
# One package that cannot be had must not keep the others away.
again install "${missing[@]}" || for package in "${missing[@]}"; do install "$package"; done
mapfile -t missing < <(./missing.sh "$@")
[ ${#missing[@]} -eq 0 ] || { printf 'install.sh: cannot be had: %s\n' "${missing[*]}" >&2; exit 1; }
