package preload

import (
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layers are the folders of the C sources from the bottom up, each with the one header that the
// layers above may include.
var layers = []struct{ name, header string }{
	{"segment", "segment/segment.h"},
	{"conn", "conn/sock.h"},
	{"fd", "fd/fd.h"},
	{"hooks", ""},
}

// rank returns the number of the layer that file, a path like "conn/send.c", lies in; -1 none.
func rank(file string) int {
	for i, l := range layers {
		if strings.HasPrefix(file, l.name+"/") {
			return i
		}
	}
	return -1
}

// object is what a C file defines for others, and what it wants of others.
type object struct {
	file           string
	defines, wants []string
}

// compileObject compiles one file with the library's flags and reads its symbols.
func compileObject(t *testing.T, file, source string) object {
	t.Helper()
	path := filepath.Join(t.TempDir(), "o.o")
	cc := exec.CommandContext(t.Context(), "cc", "-std=gnu11", "-I.", "-I../../node/rpc/c", "-O0", "-fexceptions", "-fPIC", "-ftls-model=initial-exec", "-c", source, "-o", path)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	o := object{file: file}
	for _, s := range symbols {
		switch {
		case elf.ST_BIND(s.Info) == elf.STB_LOCAL || s.Name == "":
		case s.Section == elf.SHN_UNDEF:
			o.wants = append(o.wants, s.Name)
		default:
			o.defines = append(o.defines, s.Name)
		}
	}
	return o
}

// calls returns, for each file, the files that define what it wants, and the symbols.
func calls(objects []object) map[string]map[string][]string {
	home := make(map[string]string)
	for _, o := range objects {
		for _, s := range o.defines {
			home[s] = o.file
		}
	}
	graph := make(map[string]map[string][]string)
	for _, o := range objects {
		graph[o.file] = make(map[string][]string)
		for _, s := range o.wants {
			if at, ok := home[s]; ok && at != o.file {
				graph[o.file][at] = append(graph[o.file][at], s)
			}
		}
	}
	return graph
}

// upward returns the calls that lead from a layer to a higher one.
func upward(graph map[string]map[string][]string) []string {
	var found []string
	for from, to := range graph {
		for at, symbols := range to {
			if rank(from) < rank(at) {
				found = append(found, fmt.Sprintf("%s calls %s of %s", from, strings.Join(symbols, ", "), at))
			}
		}
	}
	slices.Sort(found)
	return found
}

// circles returns the files of a layer that call each other in a circle, with the calls that
// close it. It takes away, repeatedly, what calls nothing, and what nothing calls.
func circles(graph map[string]map[string][]string) []string {
	left := make(map[string]bool)
	for file := range graph {
		left[file] = true
	}
	inside := func(from, at string) bool { return left[from] && left[at] && rank(from) == rank(at) }
	for again := true; again; {
		again = false
		for file := range left {
			out, in := false, false
			for at := range graph[file] {
				out = out || inside(file, at)
			}
			for from, to := range graph {
				_, calls := to[file]
				in = in || calls && inside(from, file)
			}
			if !out || !in {
				delete(left, file)
				again = true
			}
		}
	}
	var found []string
	for _, from := range slices.Sorted(maps.Keys(left)) {
		for at, symbols := range graph[from] {
			if inside(from, at) {
				found = append(found, fmt.Sprintf("%s calls %s of %s, in a circle", from, strings.Join(symbols, ", "), at))
			}
		}
	}
	slices.Sort(found)
	return found
}

var quoted = regexp.MustCompile(`(?m)^#include "([^"]+)"`)

// includes returns the #include lines of a file that name a header which it may not: one of a
// higher layer, one of a lower layer that is not its interface, one that does not exist.
func includes(file, text string) []string {
	var found []string
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		if m[1] == "rpc.h" { // of no layer: other libraries have it, too
			continue
		}
		at := rank(m[1])
		_, err := os.Stat(m[1])
		if err != nil || at > rank(file) || at < rank(file) && layers[at].header != m[1] {
			found = append(found, fmt.Sprintf("%s includes %s", file, m[1]))
		}
	}
	return found
}

// The layers of the library: calls and includes lead down only, a layer is seen by its one header,
// and the files of a layer call each other in no circle.
func TestLayers(t *testing.T) {
	needCompiler(t)
	t.Parallel()
	var objects []object
	for _, l := range layers {
		files, err := filepath.Glob(l.name + "/*.[ch]")
		if err != nil || len(files) < 3 {
			t.Fatalf("%d files in %s (%v)", len(files), l.name, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range includes(file, string(text)) {
				t.Error(s)
			}
			if filepath.Ext(file) == ".c" {
				objects = append(objects, compileObject(t, file, file))
			}
		}
	}
	graph := calls(objects)
	for _, s := range append(upward(graph), circles(graph)...) {
		t.Error(s)
	}

	// The same finds what is planted.
	planted := filepath.Join(t.TempDir(), "planted.c")
	text := "void fd_doubt(void); void ds_lock_wake(void *); void ds_planted(void) { fd_doubt(); ds_lock_wake(0); }\n"
	if err := os.WriteFile(planted, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	objects = append(objects, compileObject(t, "segment/planted.c", planted))
	for i := range objects {
		if objects[i].file == "segment/lock.c" {
			objects[i].wants = append(objects[i].wants, "ds_planted")
		}
	}
	graph = calls(objects)
	if got := upward(graph); !slices.Contains(got, "segment/planted.c calls fd_doubt of fd/fdtab.c") {
		t.Errorf("a call upwards is not found: %q", got)
	}
	if got := circles(graph); !slices.Contains(got, "segment/planted.c calls ds_lock_wake of segment/lock.c, in a circle") {
		t.Errorf("a circle is not found: %q", got)
	}
	for file, header := range map[string]string{"conn/planted.c": "fd/fd.h", "fd/planted.c": "conn/inner.h", "hooks/planted.c": "hooks/missing.h"} {
		if got := includes(file, fmt.Sprintf("#include %q\n", header)); len(got) != 1 {
			t.Errorf("%s includes %s: found %q", file, header, got)
		}
	}
}
