package preload

import (
	"context"
	"embed"
	"slices"
	"strings"

	"exnet/internal/cbuild"
)

// sources are what the library is built from, a folder for each layer.
//
//go:embed segment conn fd hooks
var sources embed.FS

// Name is the library's file name.
const Name = "libexnds.so"

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
// only concerns warnings.
var source = cbuild.Source{
	Name: Name, Files: sources,
	Flags: []string{"-std=gnu11", "-I.", "-O2", "-fexceptions", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec",
		"-fno-strict-aliasing", "-shared", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,--no-undefined"},
	Libs: []string{"-ldl", "-lpthread"},
}

// Build returns the path of the library, installed or built (see cbuild.Source.Build).
//
// Concurrency: may be called at the same time by many processes.
func Build(ctx context.Context) (string, error) { return source.Build(ctx) }
