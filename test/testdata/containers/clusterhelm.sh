# clusterhelm.sh is the part of cluster.sh about metrics, by the component monitoring and by the chart packaging/helm, and
# about what either leaves on the nodes.

say "metrics, by the component monitoring: for who shows the token, and no pod else"
kubectl apply -f - <<'END_' # PodMonitor, as much of it as the API server needs
{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "podmonitors.monitoring.coreos.com"}, "spec": {
 "group": "monitoring.coreos.com", "scope": "Namespaced", "names": {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"},
 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}
END_
eventually kubectl get podmonitors -A
token=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
kubectl -n kube-system create secret generic exnet-metrics --from-literal=token="$token"
mkdir "$base/overlay"
path=$(realpath --relative-to "$base/overlay" "$manifests") # kustomize takes no other
echo "{\"resources\": [\"$path\"], \"components\": [\"$path/monitoring\"]}" >"$base/overlay/kustomization.yaml"
kubectl apply -k "$base/overlay"
kubectl -n kube-system rollout status daemonset/exnet-agent --timeout 180s
metrics() { kubectl exec deployment/near -c main -- curl -s "$@" "http://192.168.50.11:9400/metrics"; }
counts() { metrics -H "Authorization: Bearer $token" | grep '^exnet_agent_direct_sent_bytes_total.*default/near'; }
refused() { metrics "$@" | grep -qx 'show the token: Authorization: Bearer TOKEN'; }
eventually counts
counts
refused
refused -H 'Authorization: Bearer none'
kubectl -n kube-system get podmonitor exnet-agent -o jsonpath='{.spec.podMetricsEndpoints[0].authorization}{"\n"}'

say "kubectl delete"
kubectl delete -f "$here/clusterpods.yaml" --timeout 60s
kubectl delete -k "$base/overlay" --timeout 60s
gone() { [ "$(kubectl get pods -A --no-headers 2>/dev/null | wc -l)" = 0 ]; }
eventually gone

say "helm install, with metrics"
helm() { HOME=$base "$kube/helm" --namespace kube-system "$@"; }
helm install exnet "$manifests/../helm" --set podMonitor=true --wait --timeout 60s
kubectl -n kube-system get podmonitor exnet-agent
eventually offers
kubectl apply -f "$here/clusterpods.yaml"
eventually some node1 redis-server direct
eventually counts
counts
refused
helm upgrade exnet "$manifests/../helm" --reuse-values --set resources.requests.memory=65Mi --wait --timeout 120s
eventually some node1 redis-server direct
kubectl delete -f "$here/clusterpods.yaml" --timeout 60s
helm uninstall exnet --wait
kubectl -n kube-system delete secret exnet-metrics
eventually gone

say "uninstall.yaml"
left() { on "$1" bash -c 'shopt -s nullglob; echo /opt/exnet/* /run/exn/* /etc/cdi/exnet* /var/lib/kubelet/device-plugins/exnet* /sys/fs/bpf/exnet*'; }
clean() { [ -z "$(left node1)$(left node2)" ]; }
left node1
if clean; then exit 1; fi
kubectl apply -f "$manifests/uninstall.yaml"
kubectl -n kube-system rollout status daemonset/exnet-uninstall --timeout 60s
clean || { left node1; left node2; false; }
kubectl delete -f "$manifests/uninstall.yaml" --timeout 60s
eventually gone
