// Package control is the protocol of a node's daemon: the requests and replies of
// its control socket, the content of a status, and a client.
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
// The socket serves the fabric's user and group. A Request is at most MaxRequest bytes long.
// Capture and Stop use up a Client.
//
// # Exports
//
// The names are the operations of the protocol, their requests and replies, and the
// parts of these.
package control
