# clusterrules.sh is the part of cluster.sh about who may be direct: the rules of a pod's annotation and of one container,
# a pod that means harm, and pods while the agent is away.

# ask NAME ANNOTATION IMAGE COMMAND: a pod on node1 that asks for direct sockets.
ask() {
	jq -n '$ARGS.positional as $a | {apiVersion: "v1", kind: "Pod", metadata: {name: $a[0], annotations: {"exnet.io/direct": $a[1]}}, spec: {
		nodeSelector: {"kubernetes.io/hostname": "node1"}, terminationGracePeriodSeconds: 1, containers: [
		{name: "main", image: $a[2], imagePullPolicy: "IfNotPresent", command: ["bash", "-c", $a[3]], resources: {limits: {"exnet.io/direct": 1}}}]}}' \
		--args "$@" | kubectl apply -f -
}
client="while :; do redis-benchmark -h 10.96.7.7 -q -t incr -c 2 -n 1000000000; sleep 1; done"
# ways POD: how the connections of its programs go, and by which rule.
ways() {
	on node1 /opt/exnet/exn-tun status --sockets --json | jq -c --arg n "default/$1/main" \
		'[.[] | select(.name == $n) | .connections[] | select(.mode != "closed") | [.path, .rule]] | unique'
}
goes() { [ "$(ways "$1")" = "$2" ]; }
of_agent() { kubectl -n kube-system logs -l app=exnet-agent -c agent --tail -1 | grep -q "$1"; }

say "rules of pods, by the annotation exnet.io/direct"
ask off off localhost/lab:1 "$client"
ask only $'off\non --port 6379' localhost/lab:1 "$client"
ask wrong of localhost/lab:1 "$client"
eventually goes off '[["tcp","off # of the pod"]]'
eventually goes only '[["shm","on --port 6379 # of the pod"]]'
eventually goes wrong '[["shm",null]]'
eventually of_agent 'default/wrong/main.*a rule begins with on or off'
for pod in off only wrong; do echo "$pod: $(ways "$pod")"; done

say "exn-tun direct off --container, and on"
on node1 /opt/exnet/exn-tun direct off --container default/only/main
eventually goes only '[["tcp","off --container default/only/main"]]'
eventually goes wrong '[["shm",null]]'
on node1 /opt/exnet/exn-tun direct on --container default/only/main
eventually goes only '[["shm","on --container default/only/main"]]'
on node1 /opt/exnet/exn-tun direct on
kubectl delete pod off wrong --now

say "a pod that means harm: root, with what the device plugin gives it"
ask hostile '' exnet:latest 'trap exit TERM; coproc read; wait'
kubectl wait --for condition=Ready pod/hostile --timeout 60s
for command in 'direct off' 'direct show' 'status' 'status --sockets' 'capture --direct -w /tmp/bytes' 'explain 1'; do
	echo "\$ exn-tun $command"
	# shellcheck disable=SC2086 # words
	! timeout 20 "$kube/kubectl" exec hostile -- exn-tun $command || exit 1
done
[ "$(on node1 /opt/exnet/exn-tun direct show)" = 'agent: all connections may be direct' ]
goes only '[["shm","on --port 6379 # of the pod"]]'
kubectl delete pod hostile --now

say "the agent is away: connections stay, containers start anew on TCP, and so do new pods"
kubectl -n kube-system patch daemonset exnet-agent -p '{"spec": {"template": {"spec": {"nodeSelector": {"away": "yes"}}}}}'
away() { [ -z "$(kubectl -n kube-system get pods -l app=exnet-agent -o name)" ]; }
eventually away
offered() { [ "$(kubectl get node node1 -o jsonpath='{.status.allocatable.exnet\.io/direct}')" = "$1" ]; }
offered 1024
ask late '' localhost/lab:1 "$client"
kubectl wait --for condition=Ready pod/late --timeout 60s
restarted() { kubectl get pod -l app=db -o jsonpath='{.items[*].status.containerStatuses[*].restartCount}' | grep -q "^$1$"; }
restarted 0
kubectl exec only -- redis-cli -h 10.96.7.7 shutdown nosave || true
eventually restarted 1
serves() { kubectl exec only -- timeout 5 redis-cli -h 10.96.7.7 ping | grep -q PONG; }
eventually serves
serves_late() { kubectl exec late -- timeout 5 redis-cli -h 10.96.7.7 ping | grep -q PONG; }
kubectl get pods
eventually serves_late
say "and comes back"
kubectl -n kube-system patch daemonset exnet-agent --type json -p '[{"op": "remove", "path": "/spec/template/spec/nodeSelector/away"}]'
kubectl -n kube-system rollout status daemonset/exnet-agent --timeout 60s
# What was connected meanwhile stays on TCP: its program begins anew.
for pod in only late; do kubectl exec "$pod" -- bash -c 'for p in /proc/[0-9]*; do [ "$(<"$p/comm")" != redis-benchmark ] || kill "${p#/proc/}"; done'; done
eventually goes late '[["shm",null]]'
eventually goes only '[["shm","on --port 6379 # of the pod"]]'
kubectl get pods
on node1 /opt/exnet/exn-tun status
kubectl delete pod only late --now
