#!/usr/bin/env bash
# kubelet.sh BIN ROOTFS KUBELET [CRIO]: a kubelet on its own, with containerd or CRI-O and the plugins of CNI, whose
# static pods ask for direct sockets by a limit, as docs/any-network.md says. ROOTFS has glibc; beside CRIO is its
# program pinns. Ends with "ok".
set -euo pipefail
bin=$1 rootfs=$2 kubelet=$3 crio=${4:-} image=localhost/lab:1
. "${0%/*}/common.sh"
unified
base=$(mktemp -d /run/kubelet.XXXXXX)
mkdir -p "$base"/{pods,image,log} /etc/cni/net.d /etc/cdi /var/lib/kubelet
ip link add uplink type bridge && ip link set uplink up
ip address add 192.0.2.1/24 dev uplink && ip route add default via 192.0.2.2 # the kubelet looks for a node's address
trap 'tail -n 20 "$base"/*.log' EXIT
cat >/etc/cni/net.d/10-lab.conflist <<END_
{"cniVersion": "1.0.0", "name": "lab", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
 "ipam": {"type": "host-local", "dataDir": "$base/ipam", "ranges": [[{"subnet": "10.91.7.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
END_
cat >"$base/kubelet.yaml" <<END_
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: $base/pods
podLogsDir: $base/log
containerRuntimeEndpoint: unix://$base/cri.sock
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
enableServer: false
resolvConf: ""
evictionHard: {nodefs.available: "0%", imagefs.available: "0%"}
END_

case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) arch=$(uname -m) ;;
esac
tar -C "$rootfs" -cf "$base/image/layer.tar" .
cat >"$base/image/config.json" <<END_
{"architecture": "$arch", "os": "linux",
 "config": {"Env": ["PATH=/bin"], "Entrypoint": ["bash", "-c", "trap exit TERM; coproc read; wait"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha256sum <"$base/image/layer.tar" | cut -d ' ' -f 1)"]}}
END_
echo '[{"Config": "config.json", "RepoTags": ["'$image'"], "Layers": ["layer.tar"]}]' >"$base/image/manifest.json"

# containerd and crio start their runtime, which has the image and listens at cri.sock; none: it has no containers.
containerd() {
	cat >"$base/containerd.toml" <<-END_
	version = 2
	root = "$base/root"
	state = "/run/containerd"
	[grpc]
	address = "$base/cri.sock"
	[plugins."io.containerd.grpc.v1.cri"]
	sandbox_image = "$image"
	disable_cgroup = true
	restrict_oom_score_adj = true
	enable_cdi = true
	cdi_spec_dirs = ["/etc/cdi"]
	[plugins."io.containerd.grpc.v1.cri".cni]
	bin_dir = "/usr/lib/cni"
	conf_dir = "/etc/cni/net.d"
	[plugins."io.containerd.grpc.v1.cri".containerd]
	snapshotter = "native"
	END_
	command containerd -c "$base/containerd.toml" >"$base/containerd.log" 2>&1 &
	runtime=$!
	eventually ctr version
	tar -C "$base/image" -c . | ctr images import --snapshotter native - >/dev/null
	none() { [ -z "$(ctr tasks ls -q)" ]; }
}
ctr() { command ctr -a "$base/cri.sock" -n k8s.io "$@"; }
crio() {
	mkdir -p /etc/containers
	echo '{"default": [{"type": "insecureAcceptAnything"}]}' >/etc/containers/policy.json
	cat >"$base/storage.conf" <<-END_
	[storage]
	driver = "vfs"
	graphroot = "$base/storage"
	runroot = "/run/containers/storage"
	END_
	export CONTAINERS_STORAGE_CONF=$base/storage.conf
	# CRI-O always has limits of cgroups, where containerd can do without them (disable_cgroup).
	cat >"$base/runc" <<-'END_'
	#!/usr/bin/env bash
	bundle='' next=''
	for a; do
		[ -z "$next" ] || bundle=$a
		next=''
		case $a in -b | --bundle) next=yes ;; --bundle=*) bundle=${a#*=} ;; esac
	done
	if [ -n "$bundle" ]; then
		jq 'del(.linux.resources)' "$bundle/config.json" >"$bundle/without"
		mv "$bundle/without" "$bundle/config.json"
	fi
	exec runc "$@"
	END_
	chmod 755 "$base/runc"
	cat >"$base/crio.conf" <<-END_
	[crio]
	root = "$base/storage"
	runroot = "/run/containers/storage"
	storage_driver = "vfs"
	log_dir = "$base/log"
	version_file = "$base/version"
	clean_shutdown_file = "$base/clean"
	[crio.api]
	listen = "$base/cri.sock"
	[crio.runtime]
	cgroup_manager = "cgroupfs"
	conmon_cgroup = "pod"
	default_runtime = "runc"
	pinns_path = "${crio%/*}/pinns"
	cdi_spec_dirs = ["/etc/cdi"]
	namespaces_dir = "$base/ns"
	container_exits_dir = "$base/exits"
	container_attach_socket_dir = "$base/attach"
	hooks_dir = []
	apparmor_profile = "unconfined"
	[crio.runtime.runtimes.runc]
	runtime_path = "$base/runc"
	monitor_path = "/usr/bin/conmon"
	monitor_cgroup = "pod"
	[crio.image]
	pause_image = "$image"
	pause_command = "/bin/bash"
	[crio.network]
	network_dir = "/etc/cni/net.d"
	plugin_dirs = ["/usr/lib/cni"]
	[crio.nri]
	enable_nri = false
	END_
	tar -C "$base/image" -cf "$base/image.tar" config.json layer.tar manifest.json
	skopeo copy -q docker-archive:"$base/image.tar" containers-storage:$image
	"$crio" --config "$base/crio.conf" --config-dir '' >"$base/crio.log" 2>&1 &
	runtime=$!
	eventually test -S "$base/cri.sock"
	none() { ! pgrep -x conmon; }
}
if [ -n "$crio" ]; then crio; else containerd; fi

"$kubelet" --config "$base/kubelet.yaml" --hostname-override node >"$base/kubelet.log" 2>&1 &
kubelet=$!
eventually test -S /var/lib/kubelet/device-plugins/kubelet.sock

# pod NAME LIMIT COMMAND...: a static pod of one container.
pod() {
	jq -n '{apiVersion: "v1", kind: "Pod", metadata: {name: $ARGS.positional[0]}, spec: {terminationGracePeriodSeconds: 1, containers: [
		{name: "main", image: "'$image'", imagePullPolicy: "Never", command: $ARGS.positional[2:],
		resources: {limits: {"exnet.io/direct": $ARGS.positional[1]}}}]}}' --args -- "$@" >"$base/pod.json"
	mv "$base/pod.json" "$base/pods/$1.json"
}
# address PROGRAM: that of the pod in which a program runs.
address() { nsenter -n -t "$(pgrep -nx "$1")" ip -j address show dev eth0 | jq -r '.[].addr_info[] | select(.family == "inet").local'; }

for by in '' --cdi; do
	echo "-- two pods, with exn-tun device-plugin $by"
	"$bin/exn-tun" cdi >/etc/cdi/exnet.yaml
	[ -n "$by" ] || rm /etc/cdi/exnet.yaml
	"$bin/exn-tun" agent >"$base/agent.log" 2>&1 &
	agent=$!
	# shellcheck disable=SC2086 # a flag or none
	"$bin/exn-tun" device-plugin /var/lib/kubelet/device-plugins $by >"$base/device.log" 2>&1 &
	device=$!
	eventually grep -q 'device plugin: registered' "$base/device.log"
	pod db 1 redis-server --protected-mode no --save '' --dir /tmp
	eventually address redis-server
	pod client 1 redis-benchmark -h "$(address redis-server)" -q -t get -l
	eventually eval '[ "$(direct redis-benchmark)" -gt 0 ]'
	eventually eval '[ "$(direct redis-server)" -gt 0 ]'
	"$bin/exn-tun" status
	"$bin/exn-tun" status | grep '^ *default/db-node/main ' >/dev/null
	rm "$base"/pods/*
	eventually none
	kill $agent $device
	wait $agent $device
done
kill $kubelet
wait $kubelet || true
kill $runtime
wait $runtime || true
trap - EXIT
echo ok
