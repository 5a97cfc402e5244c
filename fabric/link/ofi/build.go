package ofi

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"exnet/internal/cbuild"
)

//go:embed helper
var sources embed.FS

// Name is the helper's file name.
const Name = "exn-ofi"

// flags are those of the helper, without what only concerns warnings.
var flags = []string{"-std=gnu11", "-O2", "-fPIE", "-pie", "-Wl,-z,now", "-Wl,-z,relro"}

// Build returns the path of the helper: beside the running program, in /usr/lib/exnet, or
// built from the sources that are embedded here (see package cbuild), which takes a C
// compiler and libfabric's headers. ErrMissing: it can be had nowhere.
func Build(ctx context.Context) (string, error) {
	files, err := fs.Sub(sources, "helper")
	if err != nil {
		return "", fmt.Errorf("ofi: %w", err)
	}
	path, err := cbuild.Source{Name: Name, Files: files, Flags: flags, Libs: []string{"-lfabric"}}.Build(ctx)
	switch {
	case errors.Is(err, cbuild.ErrSource) && strings.Contains(err.Error(), "rdma/"):
		return "", fmt.Errorf("%w: its headers are not installed (Debian: libfabric-dev)", ErrMissing)
	case errors.Is(err, cbuild.ErrSource), errors.Is(err, cbuild.ErrCompiler):
		return "", fmt.Errorf("%w: %w", ErrMissing, err)
	}
	return path, err
}
