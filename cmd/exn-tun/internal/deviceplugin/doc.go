// Package deviceplugin offers direct sockets to a kubelet as a resource, exnet.io/direct, by its
// device-plugin API (v1beta1): a pod asks by limits: {exnet.io/direct: 1}.
//
// # Architecture
//
//	Run ──▶ a server at DIR/exnet.sock ◀── ListAndWatch, Allocate ── kubelet
//	 └────▶ Register, at DIR/kubelet.sock ──────────────────────────▶ kubelet
//
// A kubelet that starts removes all sockets of its directory and makes its own anew. Run looks at
// both once a second; if one has changed, it begins from the start. What a container is given is
// that of package cdi: the name of a CDI device, or its mounts and variables, for a runtime that
// does not know CDI. A kubelet puts variables before those of the pod: a pod's own LD_PRELOAD
// replaces that of here.
//
// A kubelet forgets what a plugin offers when that ends. So the plugin is a process beside the
// agent: pods start while the agent is away, and stay on TCP until it is back.
//
// # Concurrency
//
// Run has a goroutine; gRPC has its own for each call.
//
// # Limits
//
// The resource has Count devices, which are alike and of which each container takes one.
package deviceplugin
