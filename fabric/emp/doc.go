// Package emp is the EXTOLL Management Program of a fabric (thesis section 3.3.3): it
// gives node IDs, and has the nodes find each other as they come and go. Here they meet on
// one host; package mesh is where those of several hosts do (Home).
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
// That a node lives is what its lock says: the kernel releases it with the
// node's last descriptor, however the node ends. Process IDs mean nothing in
// another container and are reused.
//
// A node that ends closes its description, which inotify reports to the others,
// and its sockets, which ends its links. Whoever notices first removes its files.
// One that comes back, with the same ID or another, has another token, and so is
// a new peer.
//
// # Security
//
// The directory belongs to one user, or to a group. Who may write it may join
// the fabric; both ends of a connection check the other's credentials (unix(7),
// SO_PEERCRED) beyond that.
//
// # Concurrency
//
// All methods may be called from many goroutines; Run once.
//
// # Limits
//
// One host. flock and Unix sockets must work on the directory's file system,
// which they do on tmpfs, but not on every network file system.
package emp
