// Package inject puts the preload library into programs that make their own system calls: static
// ones and Go's. It does so while the kernel starts the program, or to one that runs; the file
// stays as it is.
//
// # Architecture
//
//	exn-run: find the places in the program's file, newPlan
//	   ├─ clone ──▶ the tracer: ds_free_trace (preload/free/trace.c), a process of its own that
//	   │               │       shares exn-run's memory, and keeps it
//	   ▼ execve        │ PTRACE_SEIZE
//	program, stopped before its first instruction
//	   │◀──────────────┤ has it map the library's code, and call it
//	   ▼               │
//	ds_free_boot (boot.c): maps the rest, starts the library, writes the jumps
//	   ▼               └─ goes
//	the first instruction
//
// The tracer is C, as it lives in memory that Go's runtime has left. A process of Go takes longer
// to start than all of this.
//
// # What is where
//
//	text of the program        the library               stubs
//	  jmp ─────────────────────────────────────────────▶ keep the arguments
//	                           ds_free_entry ◀────────── jmp
//	                             (the hook, or the kernel)
//	  behind the place ◀──────────────────────────────── the moved instructions, jmp
//
// Go has one place, the function Syscall6, whose jump leads to ds_free_go, and the call by which a
// goroutine waits for bytes, which leads to ds_free_poll (poll_amd64.go). The call of Go's handler
// leads to ds_free_signal: to the handler, a thread that is in the library is in Syscall6. Static C
// has many places: each syscall instruction that is followed by a comparison of its result
// (sites.go). The library finds what it knows of a thread by the GS base, and needs a page of zeros
// at 1 MiB (free/slot.h).
//
// # A tracer that dies
//
// The program never depends on the tracer. A system call that the tracer has it make returns to a
// few bytes (gate.go) that restore all registers from the stack: without the tracer the program
// goes on from there, plain. The text changes last, by code in the program that needs no tracer
// (ds_free_boot). So a program is plain or whole, whenever the tracer dies. No page is both
// writable and executable.
//
// # A program that runs
//
// Attach stops all threads, has one of them map the library, and writes the jumps by itself
// (running.go). Until its start has succeeded the library passes every call on to the kernel: so
// the order of the writes does not matter to a program whose tracer dies. A jump has five bytes, a
// system call two, behind which threads wait: a short jump is preferred, which changes those two
// alone. Elsewhere a thread whose next instruction a jump replaces is moved to its stub, and if the
// frame of a handler comes back to one, Attach waits. The thread that maps the library makes a call
// that it waited in anew. Descriptors stay the kernel's, except listeners and epoll instances.
//
// # arm64
//
// An instruction has four bytes, so a jump replaces a system call alone: no instruction moves, and
// no thread. A jump reaches 128 MB. The stub makes the call if it is not the library's
// (free/entry_arm64.c). Where the kernel repeats a call it goes back by four bytes, to the jump.
// Syscall6 has its system call replaced, and so has runtime.clone: a new thread has its parent's
// TPIDR_EL0 until its stub has made it 0 (free/slot.h).
//
// # Concurrency
//
// Launch keeps its thread, which becomes the program. Attach has a thread of its own, and may be
// called by many goroutines for different programs.
//
// # Limits
//
// Linux on amd64 and arm64 (with pages of 4096 bytes). A frame of a handler on another stack than
// the thread's is not looked for. Not programs of 32 bits, not what an SELinux policy governs. Not
// Go with cgo, which package preload does (hooks/go.c).
package inject
