#!/usr/bin/env bash
# cluster.sh KUBERNETES IMAGE PROGRAMS MANIFESTS [PROXY [NETWORK]]: a Kubernetes cluster of two nodes, each with its own network,
# processes and mounts, and exnet on it as its README says: agent by kubectl apply -k, pods that ask by a limit.
# KUBERNETES has what kubernetes.sh builds; IMAGE is the unpacked tarball of release.sh, of which the image is built;
# PROGRAMS is a root file system with redis and test/numbered/c; MANIFESTS is packaging/kubernetes, beside the chart; PROXY is kube-proxy's
# mode (iptables or nftables). NETWORK is flannel's backend (host-gw or vxlan); without it routes join the nodes' bridges.
# Ends with "ok".
set -euo pipefail
kube=$1 image=$2 programs=$3 manifests=$4 proxy=${5:-nftables} network=${6:-}
here=$(cd "${0%/*}" && pwd)
. "$here/common.sh"
umount -l /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
base=$(mktemp -d /run/cluster.XXXXXX)
began=$(date +%s)
say() { echo "-- $(($(date +%s) - began)) s: $*"; }
finish() {
	[ $? = 0 ] || {
		tail -n 8 "$base"/*.log | cut -c1-300
		kubectl get pods -A -o wide
		kubectl describe pods -A | tail -15
		# shellcheck disable=SC2016 # the node expands it
		for i in 1 2; do on "node$i" bash -c '/opt/exnet/exn-tun status; /opt/exnet/exn-tun status --sockets | cut -c1-200 | sed -n 1,20p; for n in /run/netns/*; do nsenter -n$n ss -tan; done'; done
		kubectl -n kube-system logs -l app=exnet-agent --prefix --tail 20 || true
	}
	kill -KILL "${nodes[@]}" # which ignore SIGTERM
	wait "${nodes[@]}" 2>/dev/null || true
	for i in 1 2; do eventually find "$group$i" -depth -type d -exec rmdir {} +; done
}
trap finish EXIT
nodes=()
group=/sys/fs/cgroup/${base##*/}.node
export KUBECONFIG=$base/kubeconfig
kubectl() { "$kube/kubectl" "$@"; }

# The network of the hosts: the control plane at .1, the nodes at .11 and .12.
ip link set lo up
ip link add hosts type bridge && ip link set hosts up && ip address add 192.168.50.1/24 dev hosts
ip route add default dev hosts

# The images: exnet by the Containerfile, and one with redis for the pods.
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
mkdir -p /etc/containers && echo '{"default": [{"type": "insecureAcceptAnything"}]}' >/etc/containers/policy.json
archive() { # NAME ROOT: an image of a root file system, as docker load takes it
	mkdir -p "$base/archive"
	tar -C "$2" -cf "$base/archive/layer.tar" .
	cat >"$base/archive/config.json" <<-END_
	{"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/bin"], "Entrypoint": ["bash", "-c", "trap exit TERM; coproc read; wait"]},
	 "rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha256sum <"$base/archive/layer.tar" | cut -d ' ' -f 1)"]}}
	END_
	echo '[{"Config": "config.json", "RepoTags": ["'"$1"'"], "Layers": ["layer.tar"]}]' >"$base/archive/manifest.json"
	tar -C "$base/archive" -cf "$base/lab.tar" config.json layer.tar manifest.json
	rm -r "$base/archive"
}
archive localhost/lab:1 "$programs"
say "building the image exnet by the Containerfile"
buildah bud -q --network host --build-arg BASE=docker-archive:"$base/lab.tar" -t docker.io/library/exnet -f "$image/packaging/Containerfile" "$image" >/dev/null
buildah push -q docker.io/library/exnet docker-archive:"$base/exnet.tar":docker.io/library/exnet:latest

say "starting the control plane"
etcd --data-dir "$base/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
	--listen-peer-urls http://127.0.0.1:2380 --log-level error >"$base/etcd.log" 2>&1 &
openssl genrsa -out "$base/sa.key" 2048 2>/dev/null
echo 'secret,admin,1,system:masters' >"$base/tokens"
"$kube/kube-apiserver" --etcd-servers http://127.0.0.1:2379 --cert-dir "$base/certs" --bind-address 192.168.50.1 \
	--secure-port 6443 --kubelet-preferred-address-types InternalIP --token-auth-file "$base/tokens" --authorization-mode Node,RBAC --service-cluster-ip-range 10.96.0.0/16 \
	--service-account-key-file "$base/sa.key" --service-account-signing-key-file "$base/sa.key" --allow-privileged \
	--service-account-issuer https://kubernetes.default.svc --advertise-address 192.168.50.1 >"$base/apiserver.log" 2>&1 &
cat >"$KUBECONFIG" <<END_
apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://192.168.50.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: secret}}]
contexts: [{name: lab, context: {cluster: lab, user: admin}}]
current-context: lab
END_
eventually kubectl get --raw /readyz
"$kube/kube-controller-manager" --kubeconfig "$KUBECONFIG" --service-account-private-key-file "$base/sa.key" \
	--root-ca-file "$base/certs/apiserver.crt" --use-service-account-credentials --leader-elect=false --cert-dir "$base/certs" \
	--allocate-node-cidrs --cluster-cidr 10.91.0.0/16 --bind-address 127.0.0.1 >"$base/controller.log" 2>&1 &
"$kube/kube-scheduler" --kubeconfig "$KUBECONFIG" --leader-elect=false --bind-address 127.0.0.1 --cert-dir "$base/certs" >"$base/scheduler.log" 2>&1 &

# on NODE COMMAND...: in the namespaces of a node.
on() { nsenter -t "$(cat "$base/$1.pid")" -m -n -p -- "${@:2}"; }
for i in 1 2; do
	say "starting node$i"
	mkdir "$group$i"
	bash -c 'echo $$ >"$0/cgroup.procs"; exec unshare -m -n -p -C --fork --kill-child --mount-proc "$@"' "$group$i" \
		"$here/clusternode.sh" "node$i" "$base" "$kube" "$i" "$proxy" >"$base/node$i.log" 2>&1 &
	nodes+=($!)
	eventually pgrep -P $!
	pgrep -P $! >"$base/node$i.pid"
	ip link add "n$i" type veth peer name eth0 netns "/proc/$(cat "$base/node$i.pid")/ns/net"
	ip link set "n$i" master hosts up
	touch "$base/node$i.linked"
done
cidr() { kubectl get node "$1" -o jsonpath='{.spec.podCIDR}'; }
has_cidr() { [ -n "$(cidr "$1")" ]; }
routed() { # as flannel's host-gw does
	for i in 1 2; do
		eventually has_cidr "node$i"
		on "node$i" bash -c 'mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-lab.conflist' <<-END_
		{"cniVersion": "1.0.0", "name": "lab", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
		 "ipam": {"type": "host-local", "ranges": [[{"subnet": "$(cidr "node$i")"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
		 {"type": "portmap", "capabilities": {"portMappings": true}}]}
		END_
		eventually on "node$((3 - i))" ip route add "$(cidr "node$i")" via "192.168.50.1$i"
	done
}
flannel() { # BACKEND
	cp "$kube/cni/flannel" /usr/lib/cni/
	echo '{"Network": "10.91.0.0/16", "Backend": {"Type": "'"$1"'"}}' >"$base/flannel.json"
	for i in 1 2; do
		eventually has_cidr "node$i" # without one it ends
		on "node$i" env NODE_NAME="node$i" "$kube/flanneld" --kube-subnet-mgr --kubeconfig-file "$KUBECONFIG" --iface eth0 --ip-masq \
			--net-config-path "$base/flannel.json" >"$base/node$i.flannel.log" 2>&1 &
		on "node$i" bash -c 'mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-lab.conflist' <<-'END_'
		{"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
		 {"type": "portmap", "capabilities": {"portMappings": true}}]}
		END_
		eventually on "node$i" test -e /run/flannel/subnet.env
	done
}
if [ -n "$network" ]; then flannel "$network"; else routed; fi
ready() { [ "$(kubectl get nodes --no-headers | grep -c ' Ready ')" = 2 ]; }
eventually ready
kubectl get nodes -o wide

say "kubectl apply -k packaging/kubernetes"
kubectl apply -k "$manifests"
kubectl -n kube-system rollout status daemonset/exnet-agent --timeout 60s
kubectl -n kube-system rollout status daemonset/exnet-device --timeout 60s
offers() { [ "$(kubectl get nodes -o jsonpath='{.items[*].status.allocatable.exnet\.io/direct}')" = '1024 1024' ]; }
eventually offers

say "exn-tun cluster check"
"$image/exn-tun" cluster check --kubectl "$kube/kubectl"

say "pods: a database and two clients of its service, one on its node and one on the other"
kubectl apply -f "$here/clusterpods.yaml"
kubectl rollout status deployment/db --timeout 60s
kubectl rollout status deployment/near --timeout 60s
kubectl rollout status deployment/far --timeout 60s
count() { on "$1" /opt/exnet/exn-tun status --sockets --json | jq --arg p "$2" --arg m "$3" '[.[].connections[] | select(.mode == $m and .program == $p)] | length'; }
some() { [ "$(count "$@")" -gt 0 ]; }
eventually some node1 redis-benchmark direct
eventually some node1 redis-server direct
say "two pods of one node talk direct"
kubectl get pods -o wide
on node1 /opt/exnet/exn-tun status
on node1 /opt/exnet/exn-tun status --sockets | cut -c1-150 | sed -n 1,12p
eventually some node2 redis-benchmark shadow
[ "$(count node2 redis-benchmark direct)" = 0 ]
say "the pod of the other node stays on TCP"

say "rolling updates of the agent, under load: ${ROUNDS:=3}"
failures() { kubectl logs -l load=yes --all-containers --tail -1 | grep -c FAILED || true; }
lasting() { on node1 /opt/exnet/exn-tun status --sockets --json | jq '[.[].connections[] | select(.program == "redis-server" and .mode == "direct" and .received.direct_bytes > 1000000)] | length'; }
last() { [ "$(lasting)" -ge 4 ]; }
eventually last
# checked: what numbered has counted; faults: of how many connections it told.
sums() { kubectl logs -l app=checks --tail -1; }
checked() { sums | awk '/^sum/ {n += $2; bytes += $3; wrong += $4} END {printf "checked: %d connections, %d bytes, %d wrong\n", n, bytes, wrong}'; }
faults() { sums | grep -c ^fault || true; }
eventually some node1 numbered direct
before=$(failures) faults=$(faults)
for _ in $(seq "$ROUNDS"); do
	kubectl -n kube-system rollout restart daemonset/exnet-agent
	kubectl -n kube-system rollout status daemonset/exnet-agent --timeout 180s >/dev/null
	eventually some node1 redis-benchmark direct
	say "the new agent has direct connections"
	eventually last
	say "and knows those that were there before"
done
failed() {
	echo "clients failed $before times before, $(failures) after"
	kubectl logs -l load=yes --all-containers --prefix --timestamps --tail -1 | grep -B2 FAILED
	exit 1
}
[ "$(failures)" = "$before" ] || failed

say "exn-tun direct off on node1, and on"
on node1 /opt/exnet/exn-tun direct off
none() { [ "$(count node1 redis-server direct)" = 0 ]; }
eventually none
say "all connections of the database are back on TCP"
on node1 /opt/exnet/exn-tun direct on
eventually some node1 redis-benchmark direct
eventually some node1 numbered direct
[ "$(failures)" = "$before" ] || failed
checked
[ "$(faults)" = "$faults" ] || { sums | grep ^fault; exit 1; }

say "exn-tun capture of one container shows what redis is asked; its connections are direct again"
near=$(on node1 /opt/exnet/exn-tun status --sockets --json | jq -r '.[].name | strings | select(test("^default/near-"))')
agent=$(kubectl -n kube-system get pods -l app=exnet-agent --field-selector spec.nodeName=node1 -o name)
{ "$kube/kubectl" -n kube-system exec "$agent" -- timeout 20 exn-tun capture --direct --container "$near" --port 6379 2>"$base/capture.log" || true; } | grep -aqm1 INCR
cat "$base/capture.log"
returned() { [ "$(on node1 /opt/exnet/exn-tun status --sockets --json | jq --arg n "$near" '[.[] | select(.name == $n).connections[] | select(.mode == "direct" and .returns > 0)] | length')" = 4 ]; }
eventually returned
ended() { ! on node1 pgrep -f 'capture --direct' && [ "$(on node1 /opt/exnet/exn-tun direct show)" = 'agent: all connections may be direct' ]; }
eventually ended
[ "$(failures)" = "$before" ] || failed

say "a rolling update of the database, whose clients connect again"
kubectl rollout restart deployment/db
kubectl rollout status deployment/db --timeout 180s
eventually some node1 redis-benchmark direct

say "node1 is drained, and comes back"
kubectl drain node1 --ignore-daemonsets --force --delete-emptydir-data --timeout 60s
kubectl uncordon node1
kubectl rollout status deployment/db --timeout 180s
eventually some node1 redis-benchmark direct

. "$here/clusterrules.sh"
. "$here/clusterpolicy.sh"

. "$here/clusterhelm.sh"
for i in 1 2; do [ -z "$(on "node$i" pgrep -x exn-tun)" ]; done
finish
trap - EXIT
say "all done"
echo ok
