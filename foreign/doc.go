// Package foreign has the types of memory that somebody else can write while it is
// read: a peer's arena, a segment that two programs share. Such memory is no []byte,
// because code that looks at a byte twice may see two values, and one that was
// checked is not the one that is used.
//
// # Architecture
//
//	peer's memory ── Of ──► Memory ── Split ──► Frame
//	                          │                  ├── Head: private, copied once: what decides
//	                          │                  └── Rest: a Memory
//	                          └── CopyTo, AppendTo, Part, Frame.Writev: all that can be done
//
// Nothing here indexes foreign memory or hands it out as a slice. Who has to decide by
// what it says copies it first, and decides by the copy.
//
// Tests see every byte that is read (internal/readhook), and change it behind the
// reader's back.
//
// # Concurrency
//
// Memory and Frame are values, and may be read from many goroutines. How long the
// memory behind them is there is said by who lends it.
//
// # Limits
//
// A copy is not atomic: its bytes may be of different moments. What has to be one
// value is a word of its own (sync/atomic).
package foreign
