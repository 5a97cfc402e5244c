#!/usr/bin/env bash
# kubernetes.sh DIR [VERSION]: builds what cluster.sh runs, from the Go module proxy, statically: the programs of Kubernetes,
# helm, kube-router and flannel.
# 40 minutes on two cores, and 8 GB of Go's build cache. What is in DIR already stays.
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

export CGO_ENABLED=0 GOBIN=$dir
cd "$work"
# built NAME MODULE: installs a program that is not there yet.
built() {
	[ ! -x "$GOBIN/$1" ] || return 0
	echo "kubernetes.sh: $1"
	go install -trimpath -ldflags '-s -w' "$2"
}
built helm helm.sh/helm/v3/cmd/helm@v3.20.2
built kube-router github.com/cloudnativelabs/kube-router/v2/cmd/kube-router@v2.1.0
GOBIN=$dir/cni built flannel github.com/containernetworking/plugins/plugins/meta/flannel@v0.9.1 # the last release that has it
[ ! -x "$dir/flanneld" ] || exit 0
echo "kubernetes.sh: flanneld"
# Without the backends of clouds, whose modules the proxy does not have, and the one that wants a C compiler.
flannel=$(go mod download -json github.com/flannel-io/flannel@v0.28.4 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
mkdir flanneld
cd flanneld
sed '/tencentvpc\|alivpc\|awsvpc\|backend\/alloc\|backend\/udp/d' "$flannel/main.go" >main.go
sed 's/^module .*/module exnet.example\/flanneld/' "$flannel/go.mod" >go.mod
cp --no-preserve mode "$flannel/go.sum" .
go mod edit -require github.com/flannel-io/flannel@v0.28.4
go build -mod=mod -trimpath -ldflags '-s -w' -o "$dir/flanneld" .
