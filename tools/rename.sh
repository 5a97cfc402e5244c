#!/usr/bin/env bash
# rename.sh gives the module another path, everywhere: go.mod, imports, the sources that
# exn-go builds with, release.sh, docs. What users see installed keeps its name
# (/usr/lib/exnet, exnet_ metrics, exnet:// names).
#
#   tools/rename.sh PATH      such as example.org/lab/exnet
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'rename.sh: %s\n' "$*" >&2; exit 2; }
[ $# = 1 ] || fail "name the new module path, such as example.org/lab/exnet"
case $1 in -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit ;; esac

new=$1
[[ $new =~ ^[A-Za-z0-9][A-Za-z0-9_.~/-]*$ ]] || fail "${new@Q} is no module path: use letters, digits, dots, dashes and slashes"
old=$(go list -m)
[ "$old" != "$new" ] || fail "the module path is $new already"
go mod edit -module "$new" 2>/dev/null || fail "$new is no module path"
go mod edit -module "$new/tools" tools/go.mod

# The path counts as the module's where it begins a word: not below a directory (/usr/lib/exnet/),
# and not in a name (exnet://lab).
from=${old//./\\.}
find . -name .git -prune -o -path ./docs/results -prune -o -type f \
	\( -name '*.go' -o -name '*.md' -o -name '*.sh' \) ! -path ./tools/rename.sh -print0 |
	xargs -0 sed -Ei \
		-e "s#(^|[^A-Za-z0-9_./~:-])$from/([A-Za-z\"%])#\1$new/\2#g" \
		-e "s#^(import |[[:space:]])\"$from\"\$#\1\"$new\"#" \
		-e "s#^((const |[[:space:]])module +=) \"$from\"\$#\1 \"$new\"#"
find . -name '*.go' ! -path '*/testdata/*' -print0 | xargs -0 gofmt -w
echo "rename.sh: $old is $new: go build ./... && go vet ./..."
