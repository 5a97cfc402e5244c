// Package exncni is the command exn-cni: a plugin of the Container Network Interface
// (CNI, specification 1.1) that gives a container an interface exn0, and a hook of the
// Open Container Initiative (OCI) that gives a container's programs direct sockets.
//
// # Architecture
//
//	container runtime ── environment, JSON ──► Run ──► plugin: ADD, DEL, CHECK, STATUS, GC
//	                                            │        │      │
//	                                            │        │      └─► IPAM plugin (host-local, ...)
//	                                            │        ├─► node: exn-tun up, one process for each interface
//	                                            │        └─► record: what was attached, a file for each interface
//	                                            └──► oci-hook: config.json in, config.json out
//
// The node of a container runs beside it, in the host's mount and PID namespaces, and
// only its interface is in the container's network namespace: the container needs no
// privilege, device or mount for it. The node outlives the plugin's process, and ends
// with DEL or GC.
//
// # Concurrency
//
// The runtime may run many plugin processes at once, one for each container at a time.
// They share the records' directory, where each writes its own files, and the fabric's
// directory, which locks itself.
//
// # Limits
//
// The interface is a TUN device: it has no gateway, and routes lead only to the
// fabric. A container that needs the outside world needs a second network.
package exncni
