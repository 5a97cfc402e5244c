// Package foreign has types for memory that another party can write while it is
// read: a peer's arena, a segment that two programs share. Such memory is not a
// []byte, because code that reads a byte twice may see two values, and use one that
// it has not checked.
//
// # Architecture
//
//	peer's memory ── Of ──► Memory ── Split ──► Frame
//	                          │                  ├── Head: private, copied once: what decides
//	                          │                  └── Rest: a Memory
//	                          └── CopyTo, AppendTo, Part, Frame.Writev: all that can be done
//
// Nothing here indexes foreign memory or hands it out as a slice. To decide by its
// content, copy it first and decide by the copy.
//
// Tests see every byte that is read (internal/readhook), and can change it behind
// the reader's back.
//
// # Concurrency
//
// Memory and Frame are values, and may be read from many goroutines. The lender
// says how long the memory behind them remains.
//
// # Limits
//
// A copy is not atomic: its bytes may come from different moments. Read a value
// that must be consistent as an atomic word (sync/atomic).
package foreign
