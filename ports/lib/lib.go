// Package lib has the sources of librma2 and libvelo2, the NIC for programs in C.
//
// # Architecture
//
//	core/     what both share: the socket to the node, flows, grants, groups, sleep
//	rma/      librma2: memory, operations, notifications
//	velo/     libvelo2
//	include/  the headers that programs include
//	ctest/    programs that test and measure the libraries
//
// The Makefile builds the libraries. Go programs that measure them take the sources from here.
//
// # Concurrency
//
// The sources are not changed.
package lib

import "embed"

// Sources has the libraries and the program ctest/pingpong.c.
//
//go:embed core rma velo include ctest/pingpong.c
var Sources embed.FS
