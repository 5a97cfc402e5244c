package preload

import (
	"context"
	"embed"

	"exnet/internal/cbuild"
	"exnet/node/rpc/c"
)

// sources are what the library is built from.
//
//go:embed lib
var sources embed.FS

// Name is the library's file name.
const Name = "libexnmem.so"

// ErrCompiler says that the library is not installed and cannot be built: install a C compiler.
var ErrCompiler = cbuild.ErrCompiler

// source is how the library is built. The agent's thread has no canary, as it has no thread-local
// memory.
var source = cbuild.Source{
	Name: Name, Files: sources, Shared: c.Files,
	Flags: []string{"-std=gnu11", "-D_GNU_SOURCE", "-Ilib", "-I.", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-stack-protector",
		"-shared", "-Wl,--no-undefined"},
	Libs: []string{"-lpthread", "-ldl"},
}

// Build returns the path of the library, installed or built (see cbuild.Source.Build).
//
// Concurrency: may be called at the same time by many processes.
func Build(ctx context.Context) (string, error) { return source.Build(ctx) }
