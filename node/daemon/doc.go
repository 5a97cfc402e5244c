// Package daemon runs one node of a fabric as a process: "exn-tun up" and what
// talks to it.
//
// # Architecture
//
//	exn-tun up ──► Start: emp.Join ► NIC ► node (exn0, IP stack) ► txloop
//	                 │ Run
//	                 ├─ emp.Member.Run ── links to the peers, as they come and go
//	                 ├─ mesh.Mesh.Run ── the same for nodes of other hosts (Hosts)
//	                 ├─ exn.Interface.Run, txloop.Loop.Run ── the data path
//	                 ├─ broker of direct sockets  /run/exn/ds/<inode>.sock
//	                 │      node-<id>.ds ── the brokers of the peers
//	                 ├─ control socket  /run/exn/<fabric>/node-<id>.ctl
//	                 │      ▲ a line of JSON for each request and each answer
//	                 │   exn-tun status, topo, set, down ── control.Dial
//	                 └─ metrics, if an address is given ◄── Prometheus
//
// A Config comes from a TOML file (ReadFile) and the command line. Close, after
// Run has returned, removes everything; the next daemon removes what a killed
// one leaves in the directory.
//
// With a topology, the crossbars of fabric/crossbar are between the NIC and its
// links. Each daemon has those of the whole fabric and counts what it sends and
// fetches itself; the sum over all daemons is the load of the fabric.
//
// # Concurrency
//
// Start, Run and Close are called in this order, from one goroutine. Status, Set
// and Stop may be called from any while Run runs.
//
// # Limits
//
// One node for each process. The control socket answers the fabric's user and
// group.
package daemon
