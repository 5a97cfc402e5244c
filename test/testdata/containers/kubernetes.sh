#!/usr/bin/env bash
# kubernetes.sh DIR [VERSION]: builds the programs of Kubernetes that cluster.sh runs, from the Go module proxy, statically.
# Half an hour on two cores, and 6 GB of Go's build cache. What is in DIR already stays.
set -euo pipefail
dir=$1 version=${2:-1.35.4}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
programs=(kubelet kube-proxy kube-scheduler kube-controller-manager kube-apiserver kubectl)
go mod init exnet.example/cluster
go mod edit -require "k8s.io/kubernetes@v$version"
# Kubernetes' own modules lie beside it there; published they have versions of their own.
gomod=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
sed -n 's|^\t\(k8s.io/[a-z0-9-]*\) => ./staging.*|\1|p' "$gomod" | while read -r module; do
	go mod edit -replace "$module=$module@v0.${version#*.}"
done
{
	echo 'package cluster'
	for p in "${programs[@]}"; do echo "import _ \"k8s.io/kubernetes/cmd/$p\""; done
} >programs.go
go mod tidy -e
for p in "${programs[@]}"; do
	[ ! -x "$dir/$p" ] || continue
	echo "kubernetes.sh: $p"
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$version" -o "$dir/$p" "k8s.io/kubernetes/cmd/$p"
done
