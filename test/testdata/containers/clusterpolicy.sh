# clusterpolicy.sh is the part of cluster.sh about a NetworkPolicy, by kube-router's controller: what it does to TCP it does
# to direct sockets.

# A client each, by a command of its own: with direct sockets, and by TCP on the same node and on the other one.
loads() { # NAME NODE COMMAND LIMITS
	jq -n '$ARGS.positional as $a | {apiVersion: "v1", kind: "Pod", metadata: {name: $a[0]}, spec: {
		nodeSelector: {"kubernetes.io/hostname": $a[1]}, terminationGracePeriodSeconds: 1, containers: [
		{name: "main", image: "localhost/lab:1", imagePullPolicy: "Never", resources: {limits: ($a[3] | fromjson)},
		 command: ["bash", "-c", "redis-benchmark -h 10.96.7.7 -q -t \($a[2]) -c 2 -n 1000000000; echo FAILED $?; sleep 1000"]}]}}' \
		--args "$@" | kubectl apply -f -
}
calls() { on node1 bash -c 'nsenter -n -t "$(pgrep -ox redis-server)" bash -c "exec 3<>/dev/tcp/127.0.0.1/6379; printf \"info commandstats\r\nquit\r\n\" >&3; cat <&3"' | tr -d '\r' | sed -n "s/^cmdstat_$1:calls=\([0-9]*\).*/\1/p"; }
# moves COMMAND: how many calls there were in three seconds.
moves() { local n; n=$(calls "$1"); sleep 3; echo $(($(calls "$1") - n)); }
runs() { [ "$(moves "$1")" -gt 0 ]; }
stands() { [ "$(moves "$1")" = 0 ]; }
each() { for command in sadd hset spop; do "$@" $command; done; }
tell() { for command in sadd hset spop; do echo "$command: $(moves $command) calls in 3 s"; done; }
policy() {
	kubectl apply -f - <<-'END_'
	{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "db"},
	 "spec": {"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress"]}}
	END_
}
refuses() { ! kubectl exec "$1" -- timeout 5 redis-cli -h 10.96.7.7 ping >/dev/null 2>&1; }
admits() { kubectl exec "$1" -- timeout 5 redis-cli -h 10.96.7.7 ping; }
fine() { ! kubectl logs "$1" | grep FAILED; }

say "network policies by kube-router; clients: sadd direct, hset by TCP, spop by TCP from the other node"
for i in 1 2; do
	on "node$i" "$kube/kube-router" --run-firewall --run-router=false --run-service-proxy=false --run-loadbalancer=false \
		--kubeconfig "$KUBECONFIG" --hostname-override "node$i" >"$base/node$i.policy.log" 2>&1 &
done
for i in 1 2; do eventually on "node$i" iptables -S KUBE-ROUTER-FORWARD; done
loads direct node1 sadd '{"exnet.io/direct": 1}'
loads plain node1 hset '{}'
loads other node2 spop '{}'
each eventually runs
tell
shared() { [ "$(on node1 /opt/exnet/exn-tun status --sockets --json | jq '[.[] | select(.name == "default/direct/main") | .connections[] | select(.mode == "direct")] | length')" = 2 ]; }
eventually shared
policy
for pod in direct plain other; do eventually refuses $pod; done
say "a policy forbids what is open already, and the kernel lets that go on: new connections are refused, old ones go on"
tell
each runs
shared
say "the kernel forgets the open connections: they stand, the direct ones on TCP"
on node1 bash -c 'echo 0 >/proc/sys/net/netfilter/nf_conntrack_tcp_loose'
on node1 conntrack -D -p tcp --dport 6379 >/dev/null 2>&1
# cut: both connections of the pod, at the end that had something to send.
address=$(kubectl get pod direct -o jsonpath='{.status.podIP}')
cut() { [ "$(on node1 /opt/exnet/exn-tun status --sockets --json | jq --arg a "$address:" '[.[].connections[] | select(.reason == "the network is cut") | if .server then .remote else .local end | select(startswith($a))] | unique | length')" = 2 ]; }
eventually cut
each eventually stands
tell
say "the policy goes: new connections are direct"
for pod in direct plain other; do fine $pod; done
kubectl delete networkpolicy db
on node1 bash -c 'echo 1 >/proc/sys/net/netfilter/nf_conntrack_tcp_loose'
for pod in direct plain other; do eventually admits $pod; done
kubectl delete pod direct plain other --now
eventually some node1 redis-benchmark direct
