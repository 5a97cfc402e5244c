// Package exntun is the program exn-tun: it brings up the interface exn0 and
// shows what goes on there.
//
// # Architecture
//
//	Run ── table of commands ──► demo, up, down, status, ...
//
//	up:      flags, file ─► daemon.Start ─► Run, until a signal or down
//	others:  fabric's directory ─► control.Client of each node ─► table or JSON
//
//	demo:    options ─► lab ─► checks and measurements ─► report ─► table or JSON
//	                     │
//	                     └──► a command, a shell, servers beside it
//
// A lab (package lab) is a node.Cluster (nodes with an exn0 each, in network namespaces, on
// one fabric in this process) and, when something is to be compared, a veth
// pair between two more namespaces. What is measured on exn0 is measured on the
// veth pair in the same run, in turn and by the same code: package tcpbench, in
// processes of its own, which are this program again (the hidden command
// "worker").
//
// A check says whether something works, and every check is made whatever became
// of the others. An error ends the demonstration.
//
// # Processes
//
// The user's command and shell stay in this program's process group, so that
// the keys of the terminal reach them as if exn-tun was not there; while they
// run, Ctrl-C is theirs. Servers and measuring processes have groups of their
// own. This process adopts what they leave behind (PR_SET_CHILD_SUBREAPER),
// collects what of it has ended, and in the end ends the rest. The namespaces
// have no name, so the kernel removes them with this process, however that ends.
//
// # Concurrency
//
// Run may be called once at a time: signals and adopted processes belong to the
// process as a whole.
//
// # Limits
//
// If exn-tun is killed (SIGKILL), the programs that it started are killed, too,
// but not those that they started.
package exntun
