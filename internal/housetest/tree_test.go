package housetest

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var update = flag.Bool("update", false, "write docs/tree.md anew")

const treeFile = root + "/docs/tree.md"

// otherFolders are those that are no Go package, and what is in them.
var otherFolders = map[string]string{
	".ci":                                 "what CI runs on a clean checkout",
	"cmd":                                 "the commands: each reads its arguments, and a package of internal does the rest",
	"directsockets/preload/conn":          "connections: phases, both directions, the shadow, the doorbell, the broker's client",
	"directsockets/preload/ctest":         "tests of the library's parts, in C, and their fuzz targets",
	"directsockets/preload/fd":            "the table of descriptors; the sets of epoll and poll",
	"directsockets/preload/hooks":         "the calls that the library takes over, a file for each family",
	"directsockets/preload/probes":        "programs that run as they are and under the library, and must see the same",
	"directsockets/preload/probes/static": "a probe that is linked statically: the library cannot reach it",
	"directsockets/preload/segment":       "the memory of a connection: queues, ring, doorbells; knows no socket",
	"docs":                                "what users read, a page for each task",
	"docs/design":                         "what maintainers read; architecture.md is the way in",
	"docs/styles":                         "rules for vale, which check.sh full runs on these pages",
	"docs/styles/exnet":                   "the rules: words, long sentences, dates and histories of trials",
	"docs/results":                        "what was measured and tested, with the data: dsbench report --from draws a report of them",
	"internal/pager/preload/lib":          "the sources of libexnmem.so, in C",
	"internal":                            "packages that only this module imports",
	"internal/numbered/c":                 "the programs of package numbered in C",
	"internal/bench/mpi/source":           "the program that MPI's ranks are, and the launcher that mpirun calls",
	"internal/bench/memory/source":        "a program that reads its memory, in C",
	"internal/bench/udp/source":           "the two programs that send each other datagrams, in C",
	"internal/exngo/std":                  "what exn-go adds to packages of the standard library",
	"internal/exngo/std/net":              "the part of package net that asks for direct sockets",
	"internal/exngo/std/runtime":          "the part of the scheduler that looks for messages of direct connections",
	"internal/exngo/std/shm":              "the part of package shm that the scheduler serves",
	"internal/exngo/std/unix":             "what direct sockets use of golang.org/x/sys/unix and package syscall lacks",
	"fabric/link/ofi/helper":              "exn-ofi, in C: the process that uses libfabric for a link",
	"fabric/internal":                     "what only the packages of the fabric use",
	"packaging":                           "what the packages hold beside the commands: unit, profile, scripts",
	"packaging/monitoring":                "a dashboard for Grafana, and alerts for Prometheus",
	"memory/c":                            "leases of memory for programs in C, and the plugin of nbdkit",
	"memory/c/ctest":                      "a program that tests Oncilla's interface",
	"memory/c/include":                    "the header of Oncilla's interface",
	"ports/lib/core":                      "what both share: the socket to the node, flows, grants, sleep",
	"ports/lib/ctest":                     "programs that test and measure the libraries",
	"ports/ofi/ctest":                     "programs that test the provider",
	"ports/ofi/src":                       "the provider's sources",
	"ports/lib/include":                   "the headers that programs include",
	"ports/lib/rma":                       "librma2: memory, operations, notifications",
	"ports/lib/velo":                      "libvelo2",
	"test/extoll":                         "runs the tests of EXTOLL's own librma from a checkout that the caller names",
	"tools":                               "versions of the tools that check.sh and release.sh run",
	"tools/lint":                          "staticcheck, with the analyzers of go vet and checklocks beside its own: check.sh's static analysis",
}

// folders returns all folders that have a file or a folder of this project, in order.
func folders(t *testing.T) []string {
	t.Helper()
	seen := make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case !d.IsDir():
			for dir := filepath.Dir(path); dir != root; dir = filepath.Dir(dir) {
				rel, err := filepath.Rel(root, dir)
				if err != nil {
					return err
				}
				seen[filepath.ToSlash(rel)] = true
			}
		case path == root, name == ".ci":
		case strings.HasPrefix(name, "."), slices.Contains([]string{"testdata", "corpus", "build", "bin", "dist"}, name):
			return filepath.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(seen))
}

// gist is the first sentence of a package comment without its first words; of a long one, what
// is before the colon.
func gist(doc string) string {
	text, _, _ := strings.Cut(strings.Join(strings.Fields(doc), " ")+" ", ". ")
	text = strings.TrimPrefix(strings.TrimRight(text, ". "), "Package ")
	_, text, _ = strings.Cut(text, " ") // its name
	if len(text) > 140 {
		text, _, _ = strings.Cut(text, ": ")
	}
	text, _, _ = strings.Cut(text, " (thesis")
	return strings.TrimPrefix(text, "is ")
}

// wrap breaks text into lines of at most n characters.
func wrap(text string, n int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > n {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimLeftFunc(line+" "+word, unicode.IsSpace)
	}
	return append(lines, line)
}

// nameWidth is that of the column of names.
const nameWidth = 24

// tree is what docs/tree.md has to say.
func tree(t *testing.T) string {
	t.Helper()
	all := packages(t)
	var b strings.Builder
	b.WriteString(`# The tree

A line for each folder; [architecture.md](design/architecture.md) says how they hang together. What
is said of a Go package begins its documentation, whose rest "go doc ./folder" shows. A test makes
this page: go test ./internal/housetest -run TestTree -update.

` + "```text\n")
	for _, dir := range folders(t) {
		what := otherFolders[dir]
		if p := all[dir]; p != nil && len(p.docs) == 1 {
			what = gist(p.docs[0])
		}
		if what == "" {
			t.Errorf("nothing says what the folder %s is for: a package comment, or otherFolders", dir)
		}
		depth := strings.Count(dir, "/")
		name := strings.Repeat("  ", depth) + filepath.Base(dir) + "/"
		for _, line := range wrap(what, width-nameWidth) {
			fmt.Fprintf(&b, "%-*s%s\n", nameWidth, name, line)
			name = ""
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// docs/tree.md lists each folder, and no other.
func TestTree(t *testing.T) {
	want := tree(t)
	for dir := range otherFolders {
		if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
			t.Errorf("otherFolders has %s, which does not exist", dir)
		}
	}
	if *update {
		if err := os.WriteFile(treeFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(treeFile)
	if err != nil || string(got) != want {
		t.Errorf("%v; docs/tree.md is not what the folders are: go test ./internal/housetest -run TestTree -update", err)
	}
}

// What a checkout has beside its folders is what a newcomer looks for, and nothing else.
func TestRootFiles(t *testing.T) {
	want := []string{".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "check.sh", "go.mod", "go.sum",
		"release.sh", "sources.go"}
	cmd := exec.Command("git", "ls-files", ":(glob)*")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Skip("needs git and a clone:", err)
	}
	if got := strings.Fields(string(out)); !slices.Equal(got, want) {
		t.Errorf("the root folder has %q, not %q", got, want)
	}
}

func TestGist(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{"Package fabric is the vocabulary\nof the NIC: node IDs. More.", "the vocabulary of the NIC: node IDs"},
		{"Package arp maps addresses (thesis 5.4.4).\n", "maps addresses"},
		{"Exn-go builds Go 1.26 programs.", "builds Go 1.26 programs"},
	} {
		if got := gist(c.doc); got != c.want {
			t.Errorf("%q: %q, want %q", c.doc, got, c.want)
		}
	}
}
