# clusterhelm.sh is the part of cluster.sh about the chart packaging/helm, with its PodMonitor.

say "helm install, with metrics"
kubectl apply -f - <<'END_' # PodMonitor, as much of it as the API server needs
{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "podmonitors.monitoring.coreos.com"}, "spec": {
 "group": "monitoring.coreos.com", "scope": "Namespaced", "names": {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"},
 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}
END_
helm() { HOME=$base "$kube/helm" --namespace kube-system "$@"; }
eventually kubectl get podmonitors -A
token=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
kubectl -n kube-system create secret generic exnet-metrics --from-literal=token="$token"
helm install exnet "$manifests/../helm" --set podMonitor=true --wait --timeout 60s
kubectl -n kube-system get podmonitor exnet-agent
eventually offers
kubectl apply -f "$here/clusterpods.yaml"
eventually some node1 redis-server direct
metrics() { kubectl exec deployment/near -c main -- curl -s -H "Authorization: Bearer $1" "http://192.168.50.11:9400/metrics"; }
counts() { metrics "$token" | grep '^exnet_agent_direct_sent_bytes_total.*default/near'; }
eventually counts
counts
metrics none | grep -q 'show the token'
helm upgrade exnet "$manifests/../helm" --reuse-values --set resources.requests.memory=65Mi --wait --timeout 120s
eventually some node1 redis-server direct
kubectl delete -f "$here/clusterpods.yaml" --timeout 60s
helm uninstall exnet --wait
kubectl -n kube-system delete secret exnet-metrics
eventually gone
