#!/usr/bin/env bash
# Prints the Debian packages of packages.txt that are not installed, one a line; with the word short
# only those of the short form. Where there is no dpkg it cannot tell, and says so.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v dpkg-query >/dev/null; then
	echo "missing.sh: no dpkg: see test/packages.txt for what the end-to-end tests run" >&2
	exit
fi
while read -r package; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || echo "$package"
done < <(if [ "${1:-}" = short ]; then sed '/full form/,$d' packages.txt; else cat packages.txt; fi | grep -v '^#')
