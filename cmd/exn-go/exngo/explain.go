package exngo

import (
	"debug/buildinfo"
	"fmt"

	"exnet/internal/infile"
	"exnet/internal/mark"
)

// Built is what a binary says about how it was built.
type Built struct {
	Path string // of its main package
	Go   string // the version of Go
	With string // the version of exn-go; "": it was built without
}

// Explain looks at a binary.
func Explain(name string) (b Built, err error) {
	f, err := infile.Open(name)
	if err != nil {
		return b, err
	}
	defer f.Close()
	info, err := buildinfo.Read(f)
	if err != nil {
		return b, err
	}
	b.Path, b.Go = info.Path, info.GoVersion
	b.With, err = mark.Find(f)
	return b, err
}

// String is what exn-go explain prints.
func (b Built) String() string {
	if b.With == "" {
		return fmt.Sprintf("plain TCP: built with %s, without exn-go (or it has no package net)", b.Go)
	}
	return fmt.Sprintf("direct sockets: built with %s and exn-go %s", b.Go, b.With)
}
