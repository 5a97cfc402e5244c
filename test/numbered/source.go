package numbered

import "embed"

// Sources has the programs in C: c/numbered.c and c/ports.c, to be compiled with CFlags.
//
//go:embed c
var Sources embed.FS

// CFlags are the compiler's flags for the programs in C.
var CFlags = []string{"-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"}
