// Package exnet is the root of the module. It has the sources of direct sockets, which
// exn-go builds into other people's programs.
package exnet

import "embed"

// Sources are the files of the packages that package internal/godirect consists of.
//
//go:embed directsockets/*.go directsockets/broker/*.go directsockets/segment/*.go
//go:embed internal/accept/*.go internal/counter/*.go internal/godirect/*.go internal/shm/*.go internal/shm/*.s
var Sources embed.FS
