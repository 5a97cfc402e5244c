// Package exntun is the program exn-tun: it brings up the interface exn0 and
// shows its traffic and state.
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
// one fabric in this process) and, for comparisons, a veth pair between two more
// namespaces. Every measurement of exn0 is repeated on the veth pair in the same run, in
// turn and by the same code: package tcpbench, in copies of this program (the hidden
// command "worker").
//
// A check says whether something works, and runs whether or not others failed.
// An error ends the demonstration.
//
// # Processes
//
// The user's command and shell stay in this program's process group, so that the
// keys of the terminal, Ctrl-C included, reach them directly. Servers and
// measuring processes have their own groups. This process adopts their orphans
// (PR_SET_CHILD_SUBREAPER), reaps them, and finally ends the rest. The
// namespaces have no name, so the kernel removes them with this process, however
// it ends.
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
