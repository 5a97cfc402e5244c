// Package c has the C half of package rpc: the header that the libraries in C are built with.
//
// # Concurrency
//
// The header is not changed.
package c

import "embed"

// Files has rpc.h.
//
//go:embed rpc.h
var Files embed.FS
