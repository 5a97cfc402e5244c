#!/usr/bin/env bash
# clusternode.sh NAME BASE KUBERNETES NUMBER PROXY: a node of cluster.sh, in namespaces of its own: containerd, kubelet
# and kube-proxy. It lasts as long as they do.
set -euo pipefail
name=$1 base=$2 kube=$3 i=$4 proxy=$5
. "${0%/*}/common.sh"
mount --make-rprivate /
for dir in /run/containerd /run/exn /run/flannel /run/netns /var/lib/kubelet /var/lib/containerd /var/lib/cni /opt /etc/cni /var/log; do
	mkdir -p "$dir" && mount -t tmpfs -o mode=755 none "$dir"
done
mount --make-shared /run && mount --make-rshared /var/lib/kubelet
mount -t sysfs none /sys 2>/dev/null || true
mount -t bpf none /sys/fs/bpf
umount -l /sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
eventually test -e "$base/$name.linked"
ip link set lo up
ip address add "192.168.50.1$i/24" dev eth0
ip link set eth0 up
ip route add default via 192.168.50.1
echo 1 >/proc/sys/net/ipv4/ip_forward

cat >"/run/containerd/config.toml" <<END_
version = 2
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/lab:1"
disable_cgroup = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
END_
containerd -c /run/containerd/config.toml >"$base/$name.containerd.log" 2>&1 &
eventually ctr version
for archive in lab exnet; do ctr -n k8s.io images import --snapshotter native "$base/$archive.tar" >/dev/null; done
cat >/var/lib/kubelet/config.yaml <<END_
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
resolvConf: ""
clusterDNS: []
failSwapOn: false
registerNode: true
evictionHard: {nodefs.available: "0%", imagefs.available: "0%"}
END_
"$kube/kubelet" --config /var/lib/kubelet/config.yaml --kubeconfig "$KUBECONFIG" --hostname-override "$name" \
	--node-ip "192.168.50.1$i" --cert-dir /var/lib/kubelet/pki >"$base/$name.kubelet.log" 2>&1 &
"$kube/kube-proxy" --kubeconfig "$KUBECONFIG" --proxy-mode "$proxy" --hostname-override "$name" --cluster-cidr 10.91.0.0/16 \
	--conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0s --conntrack-tcp-timeout-close-wait 0s >"$base/$name.proxy.log" 2>&1 &
wait
