package mpi

import (
	"fmt"
	"os"
	"testing"

	"exnet/cmd/dsbench/internal/paths"
	"exnet/internal/leaktest"
)

func TestMain(m *testing.M) {
	// A path starts /proc/self/exe as its workers, and that is this binary.
	if len(os.Args) == 2 {
		if work := paths.WorkerOf(os.Args[1]); work != nil {
			if err := work(os.Stdin, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	leaktest.Main(m)
}
