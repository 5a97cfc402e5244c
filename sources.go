// Package exnet is the root of the module. It has the sources of direct sockets, which
// exn-go builds into other people's programs.
package exnet

import "embed"

// Sources has the files of the packages that package internal/godirect imports, and of
// others: exn-go takes what it finds imported.
//
//go:embed directsockets/*.go directsockets/*/*.go directsockets/*/*/*.go foreign/*.go internal/*/*.go internal/*/*.s node/rpc/*.go node/rpc/*/*.go
var Sources embed.FS
