// Package clustercheck tries direct sockets on a Kubernetes cluster, with pods of its own.
//
// # Architecture
//
//	Check ─▶ kubectl ─▶ namespace: on each node a server pod, a near client, a far client
//	                                    │ Serve           │ Dial
//	                                    └── echo ◀────────┘ ─▶ Outcome, in the pod's
//	Check ◀─ kubectl get pods ◀─────────────────────────────── termination message
//
// The near client is on the server's node, and has to become direct. The far client is on the next
// node; its connection has to work, by whatever way.
//
// # Limits
//
// It asks kubectl for everything, and has the rights of its user: to make a namespace and pods in
// it, and to see nodes. Both ends are Go programs with package directsockets, not the preload
// library.
package clustercheck
