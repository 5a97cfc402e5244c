// Package elffile reads what exn-run has to know of an executable: the machine that it
// is for, its dynamic linker, its libraries, and the Go modules in it.
//
// debug/elf and debug/buildinfo do this, too, and all else of four file formats: they
// would make exn-run larger by half a megabyte.
//
// # Architecture
//
//	Open ─▶ File ─┬─ program headers ─▶ Interpreter, Needed
//	              ├─ section headers ─▶ Place, Section, IsGo
//	              └─ .go.buildinfo ───▶ Modules
//
// The headers of programs and of sections are read once.
//
// # Concurrency
//
// A File serves one goroutine.
//
// # Limits
//
// It believes nothing of a file: an impossible length or place is an error, and no
// read is longer than 4 MiB.
package elffile
