package pressure

import (
	"flag"
	"os"
	"testing"
)

var (
	full   = flag.Bool("pressure.full", false, "the full sizes: 10,000 connections, 100,000 connects, 64 nodes")
	cgroup = flag.String("pressure.cgroup", "", "a directory of a memory cgroup, v1 or v2, in which the tests may make one")
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(workerEnv); kind != "" {
		os.Exit(runWorker(kind, os.Args[1:]))
	}
	flag.Parse()
	code := m.Run()
	removeBuilt()
	os.Exit(code)
}

// size is the one of a test: in CI, or with -pressure.full.
func size(ci, all int) int {
	if *full {
		return all
	}
	return ci
}
