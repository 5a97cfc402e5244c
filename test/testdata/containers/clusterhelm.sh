# clusterhelm.sh is the part of cluster.sh about the chart packaging/helm, with its PodMonitor.

say "helm install, with metrics"
kubectl apply -f - <<'END_' # PodMonitor, as much of it as the API server needs
{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "podmonitors.monitoring.coreos.com"}, "spec": {
 "group": "monitoring.coreos.com", "scope": "Namespaced", "names": {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"},
 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}
END_
helm() { HOME=$base "$kube/helm" --namespace kube-system "$@"; }
eventually kubectl get podmonitors -A
helm install exnet "$manifests/../helm" --set podMonitor=true --wait --timeout 60s
kubectl -n kube-system get podmonitor exnet-agent
eventually offers
kubectl apply -f "$here/clusterpods.yaml"
eventually some node1 redis-server direct
metrics() { kubectl exec deployment/near -c main -- curl -s "http://192.168.50.11:9400/metrics"; }
counts() { metrics | grep '^exnet_agent_direct_sent_bytes_total.*default/near'; }
eventually counts
counts
helm upgrade exnet "$manifests/../helm" --reuse-values --set resources.requests.memory=65Mi --wait --timeout 120s
eventually some node1 redis-server direct
kubectl delete -f "$here/clusterpods.yaml" --timeout 60s
helm uninstall exnet --wait
eventually gone
