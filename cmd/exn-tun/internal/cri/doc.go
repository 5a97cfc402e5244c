// Package cri reads the annotations of a pod from the container runtime of a Kubernetes node, by
// its Container Runtime Interface (CRI, v1), which containerd and CRI-O serve.
//
// A kubelet gives a pod's annotations to the runtime with the pod's sandbox, when it makes that.
// What the API server changes later is not there. Neither the device plugin's API nor the one of
// the kubelet's resources has annotations, containerd's config.json only those that its
// configuration names, and the API server wants rights of a service account.
package cri
