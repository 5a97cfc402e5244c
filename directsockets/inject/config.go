package inject

import "errors"

// Config is what Launch is told.
type Config struct {
	File    string   // which the program will be executed from
	Library string   // libexnds-free.so
	Dir     string   // which only root and this user can write to: where the system calls of programs are is kept there; "": it is not
	Report  []string // arguments of this program's file, before a step and an errno: it says by Outcome how it went
	Explain bool     // also if it went well
}

// ErrGone says that the program did not come to be, or ended, which is no failure of the tracer.
var ErrGone = errors.New("inject: the program has ended")

// ErrPtrace says that this process may not be traced, so that nothing can be injected.
var ErrPtrace = errors.New("ptrace is not allowed")
