package cbuild

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Command compiles C files, each by itself and as many at once as there are processors, and
// links them.
type Command struct {
	// Dir is the directory to which Files and paths in Flags are relative, "" the caller's.
	Dir string
	// Compiler is cc if "".
	Compiler string
	// Flags are those of both steps, Libs those of the link alone.
	Flags, Files, Libs []string
}

// Error has what the compiler prints about sources that it refuses. It is an ErrSource.
type Error struct {
	Compiler string
	Err      error
	Output   string // all that it has printed
}

func (e *Error) Error() string {
	first, _, _ := strings.Cut(e.Output, "\n")
	return fmt.Sprintf("%v by %s: %v: %s", ErrSource, e.Compiler, e.Err, first)
}

// Unwrap returns ErrSource and Err.
func (e *Error) Unwrap() []error { return []error{ErrSource, e.Err} }

// Run writes the program or library to the file out. Object files are beside it meanwhile.
//
// Errors: an *Error, that of the first file which is refused; what a folder for the object files
// cannot be made by.
func (c Command) Run(ctx context.Context, out string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	objects, err := os.MkdirTemp(filepath.Dir(out), "objects-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(objects)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	made := make([]string, len(c.Files))
	next := make(chan int)
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(c.Files)) {
		all.Go(func() {
			for i := range next {
				if err := c.runCompiler(ctx, nil, "-c", "-o", made[i], c.Files[i]); err != nil {
					fail(err) // the first counts: those that it ends say no more than that
				}
			}
		})
	}
	for i := range c.Files {
		made[i] = filepath.Join(objects, fmt.Sprint(i, ".o"))
		next <- i
	}
	close(next)
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return c.runCompiler(ctx, c.Libs, append([]string{"-o", out}, made...)...)
}

// runCompiler runs the compiler with Flags, these arguments and libs.
func (c Command) runCompiler(ctx context.Context, libs []string, args ...string) error {
	cc := c.Compiler
	if cc == "" {
		cc = "cc"
	}
	cmd := exec.CommandContext(ctx, cc, slices.Concat(c.Flags, args, libs)...)
	cmd.Dir = c.Dir
	// What the compiler would load or say is not to depend on the caller.
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LD_PRELOAD=")
	if text, err := cmd.CombinedOutput(); err != nil {
		return &Error{Compiler: cc, Err: err, Output: strings.TrimSpace(string(text))}
	}
	return nil
}
