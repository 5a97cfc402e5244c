package exnmem

import (
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"exnet/internal/stats"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

var elsewhereMiB = flag.Int("elsewhere.mib", 64, "`MiB` that the program of BenchmarkElsewhere has; docs/results/memory.md has row with 1024, random with 256")

// BenchmarkElsewhere measures reads of memory that is partly elsewhere. A program reads all of it
// in a row with half of it here, and pages at random with a sixteenth here. The part is in
// another node's memory (lease) or in exn-mem's own (control), or all is here. The three take
// turns, and a figure is the median of what the program prints.
func BenchmarkElsewhere(b *testing.B) {
	needPaging(b)
	pages := filepath.Join(b.TempDir(), "pages")
	if out, err := exec.CommandContext(b.Context(), "cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", pages, "testdata/pages.c").CombinedOutput(); err != nil {
		b.Fatalf("cc: %v\n%s", err, out)
	}
	f := pooltest.New(b, pool.Config{}, pool.Config{Limits: pool.Limits{Lend: 4 << 30}})
	for _, order := range []struct {
		name, unit string
		share      int // of this, one is here
	}{{"row", "MB/s", 2}, {"random", "us/read", 16}} {
		program := []string{pages, order.name, strconv.Itoa(*elsewhereMiB)}
		run := []string{"run", "--local", fmt.Sprintf("%dM", *elsewhereMiB/order.share), "--remote", fmt.Sprintf("%dM", 2**elsewhereMiB)}
		under := func(more ...string) *exec.Cmd {
			cmd := exnMem(b, append(append(append(run[:len(run):len(run)], more...), "--"), program...)...)
			cmd.Env = append(cmd.Env, "EXN_MEMORY="+f.Socket(0))
			return cmd
		}
		ways := []struct {
			name    string
			command func() *exec.Cmd
		}{
			{"here", func() *exec.Cmd { return exec.CommandContext(b.Context(), program[0], program[1:]...) }},
			{"control", func() *exec.Cmd { return under("--control") }},
			{"lease", func() *exec.Cmd { return under("--stats") }},
		}
		b.Run(order.name, func(b *testing.B) {
			figures := make([][]float64, len(ways))
			for b.Loop() {
				for i, way := range ways {
					stdout, stderr, status := result(b, way.command())
					v, err := strconv.ParseFloat(strings.TrimSpace(stdout), 64)
					if err != nil || status != 0 || way.name == "lease" && !fetched(stderr) {
						b.Fatalf("%s: status %d, %v\n%s", way.name, status, err, stderr)
					}
					figures[i] = append(figures[i], v)
				}
			}
			for i, way := range ways {
				b.ReportMetric(stats.Summarize(figures[i]).Median, way.name+"-"+order.unit)
			}
		})
	}
}
