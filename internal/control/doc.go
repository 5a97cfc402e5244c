// Package control is how other processes talk to a node's daemon: the requests and
// replies of its control socket, what a status tells, and a client.
//
// # Architecture
//
//	exn-tun status, topo, set, capture, down; exn-run --node
//	   │ Nodes ► Dial ► Client
//	   ▼ a line of JSON for each Request and each Reply
//	control socket  /run/exn/<fabric>/node-<id>.ctl ──► package daemon
//
// # Concurrency
//
// A Client serves one goroutine. Everything else may be called from many.
//
// # Limits
//
// The socket answers the fabric's user and group. A Request is at most MaxRequest bytes
// long. After Capture and Stop a Client is of no more use.
//
// # Exports
//
// Each operation of the protocol has a name, and so have the forms of its request and
// answer and their parts.
package control
