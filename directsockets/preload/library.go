package preload

import (
	"context"
	"embed"
	"errors"
	"runtime"
	"slices"
	"strings"

	"exnet/internal/cbuild"
	"exnet/internal/elffile"
	"exnet/node/rpc/c"
)

// sources are what the library is built from, a folder for each layer.
//
//go:embed segment conn fd hooks
var sources embed.FS

// freeSources are what the library without a C library is built from.
//
//go:embed segment conn fd hooks free
var freeSources embed.FS

// Name is the library's file name.
const Name = "libexnds.so"

// FreeName is that of the library without a C library, for programs that have none, or whose own
// nobody can replace: static ones.
const FreeName = "libexnds-free.so"

// Prepend puts a library in front of those of a value of LD_PRELOAD, which may have it
// already.
func Prepend(library, list string) string {
	others := strings.FieldsFunc(list, func(c rune) bool { return c == ' ' || c == ':' })
	others = slices.DeleteFunc(others, func(s string) bool { return s == library })
	return strings.Join(append([]string{library}, others...), ":")
}

// ErrCompiler says that the library is not installed and cannot be built. Install a C
// compiler, or name a library that was built elsewhere.
var ErrCompiler = cbuild.ErrCompiler

// source is how the library is built. The flags are those of the Makefile, without what
// only concerns warnings. What each program that is started under exn-run pays is kept low: of the
// C library's functions, only those are looked up that are called (the dynamic linker's lock-free
// look-up, which a signal handler may meet), and no page is made read-only after that.
var source = cbuild.Source{
	Name: Name, Files: sources, Shared: c.Files,
	Flags: []string{"-std=gnu11", "-I.", "-O2", "-fexceptions", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec",
		"-fno-strict-aliasing", "-shared", "-Wl,-z,lazy", "-Wl,-z,norelro", "-Wl,-z,noseparate-code", "-Wl,-Bsymbolic-functions", "-Wl,--no-undefined"},
	Libs: []string{"-ldl", "-lpthread"},
}

// free is the same without a C library. What maps it into a program applies relocations of one kind
// (relative ones); there is no other, no undefined symbol, no thread-local storage. It uses no
// vector registers, which a program expects to find as they were.
var free = cbuild.Source{
	Name: FreeName, Files: freeSources, Shared: c.Files,
	Skip:  []string{"segment/real.c", "segment/next.c", "segment/unwind.c", "hooks/patch.c", "hooks/calls.c", "hooks/sites.c", "hooks/objects.c", "hooks/entry.c", "hooks/go.c", "hooks/goline.c", "hooks/vfork.c", "hooks/signal.c"},
	Flags: freeFlags(runtime.GOARCH),
}

// freeMachine has what its compiler is told for each processor. Go's handlers of signals on arm64
// want x28 as it was.
var freeMachine = map[string][]string{
	"amd64": {"-fcf-protection=none", "-mfsgsbase", "-mpopcnt"},
	"arm64": {"-ffixed-x28", "-mno-outline-atomics"},
}

// freeFlags are the compiler's flags for a processor.
func freeFlags(arch string) []string {
	return append([]string{"-std=gnu11", "-I.", "-O2", "-DDS_FREE", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing",
		"-fno-exceptions", "-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-U_FORTIFY_SOURCE",
		"-mgeneral-regs-only", "-ffunction-sections", "-fdata-sections", "-nostdlib", "-shared",
		"-Wl,-Bsymbolic", "-Wl,--gc-sections", "-Wl,-z,norelro", "-Wl,--no-undefined", "-Wl,--version-script=free/exports.map"}, freeMachine[arch]...)
}

// ErrFree says that there is no library without a C library for this processor.
var ErrFree = errors.New("no direct sockets for static programs on " + runtime.GOARCH)

// BuildFree returns the path of the library without a C library, installed or built.
//
// Concurrency: may be called at the same time by many processes.
func BuildFree(ctx context.Context) (string, error) {
	if freeMachine[runtime.GOARCH] == nil {
		return "", ErrFree
	}
	return free.Build(ctx)
}

// Build returns the path of the library, installed or built (see cbuild.Source.Build).
//
// Concurrency: may be called at the same time by many processes.
func Build(ctx context.Context) (string, error) { return source.Build(ctx) }

// ErrMusl says that there is no library for programs that are linked with musl.
var ErrMusl = errors.New("there is no libexnds.so for musl: install exnet's package, which has it")

// BuildMusl returns the path of the library for programs that are linked with musl: the one that
// is installed in a folder musl, or that of Build, on a system that has only musl.
//
// Concurrency: may be called at the same time by many processes.
func BuildMusl(ctx context.Context) (string, error) {
	if path := cbuild.Installed("musl/" + Name); path != "" {
		return path, nil
	}
	path, err := Build(ctx)
	if err != nil {
		return "", errors.Join(ErrMusl, err)
	}
	if !ForMusl(path) {
		return "", ErrMusl
	}
	return path, nil
}

// ForMusl reports whether a library is linked with musl.
func ForMusl(path string) bool {
	f, err := elffile.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	needed, err := f.Needed()
	return err == nil && slices.ContainsFunc(needed, func(name string) bool {
		return name == "libc.so" || strings.HasPrefix(name, "libc.musl-") // Debian's, Alpine's
	})
}
