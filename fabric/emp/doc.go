// Package emp is the EXTOLL Management Program of a fabric (thesis section 3.3.3): it
// assigns node IDs, and lets the nodes of one host find each other as they come and go.
// The nodes of several hosts find each other through package mesh (Home).
//
// # Architecture
//
// There is no extra daemon. The nodes meet in a directory:
//
//	/run/exn/lab/                (without root: $XDG_RUNTIME_DIR/exn/lab/)
//	  lock          held (flock) while something changes
//	  node-1.json   who node 1 is; held (flock) by node 1 as long as it lives
//	  node-1.sock   where its peers connect to
//	  node-1.*      what else belongs to it, such as its control socket
//	  groups        IP multicast groups: fabric group 1..62, members
//
//	Join ──► lock ─► remove what dead nodes left ─► give an ID ─► node-ID.* ─► unlock
//	Run  ──► inotify ─► who lives? ─► the higher ID connects to the lower
//	                                      │ hello, peer credentials
//	                                      ▼
//	                                  Linker(conn, peer) ─► Link ─► Done ─► again
//
// A node is alive as long as its lock is held: the kernel releases it with the
// node's last descriptor, however the node ends. Process IDs mean nothing in
// another container and are reused.
//
// When a node ends, its description file closes, which inotify reports to the
// others, and so do its sockets, which ends its links. The first node to notice
// removes its files. A node that comes back, with the same ID or another, has a
// new token, and so is a new peer.
//
// # Security
//
// The directory belongs to one user, or to a group. Anyone who may write it may
// join the fabric; in addition, both ends of a connection check the other's
// credentials (unix(7), SO_PEERCRED).
//
// # Concurrency
//
// All methods may be called from many goroutines; call Run once.
//
// # Limits
//
// One host. flock and Unix sockets must work on the directory's file system,
// which they do on tmpfs, but not on every network file system.
package emp
