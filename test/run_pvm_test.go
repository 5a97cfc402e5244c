package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/internal/netns/netnstest"
)

// Tasks of PVM in the namespaces of two nodes: over exn0, and on direct sockets. PVM's daemons use
// UDP between hosts and Unix sockets on one; tasks that ask for it (PvmRouteDirect) have a TCP
// connection of their own. (M. Fischer's thesis, chapter 3, gives PVM a plug-in for each network.)
func TestRootPVM(t *testing.T) {
	needRun(t, "pvmd", "pvm")
	checkLeaks(t)
	exnRun, err := buildExnRun()
	if err != nil {
		t.Fatal(err)
	}
	here, err := netnstest.Here()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	l := newMPILab(t, 2)
	dir := sharedDir(t)
	program := filepath.Join(dir, "pingpong")
	cc := exec.CommandContext(t.Context(), "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/pvm/pingpong.c", "-lpvm3")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := fmt.Sprintf("%s --dir %s", exnRun, l.dir)
	if library := os.Getenv("EXN_E2E_LIBRARY"); library != "" {
		run += " --library " + library
	}
	for _, tt := range []struct {
		name, task string // a script that PVM's daemons start
		master     []string
		says       string
	}{
		{"tcp", "exec " + program, []string{program}, "2 tasks: right"},
		// Only the connection between the nodes: tasks of one host use Unix sockets.
		{"direct", "exec " + run + " -- " + program, append(strings.Fields(run), "--explain", "--", program), "1 connection in 1 process: 1 direct"},
	} {
		t.Run("sockets="+tt.name, func(t *testing.T) {
			dir := sharedDir(t)
			write := func(name, text string) string {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
				return path
			}
			write("task", "#!/bin/sh\n"+tt.task+"\n")
			hosts := write("hosts", fmt.Sprintf("* ep=%s wd=%[1]s\n%s\n", dir, strings.Join(l.nodes, "\n")))
			argv := []string{
				"env", "PVM_ROOT=/usr/lib/pvm3", "PVM_ALLOW_ROOT=1", "PVM_FILES=" + dir,
				"PVM_RSH=" + testdata(t, "pvm/pvm-rsh"), "EXN_RSH=" + testdata(t, "../../cmd/dsbench/internal/mpi/source/exn-rsh"),
				fmt.Sprintf("EXN_NODES=%s=%s %s=%s", l.nodes[0], l.spaces[0].Path(), l.nodes[1], l.spaces[1].Path()),
				testdata(t, "pvm/pvm-rsh"), l.nodes[0], testdata(t, "pvm/run"), hosts,
			}
			p := startIn(t, here, nil, append(append(argv, tt.master...), "task", "2")...)
			p.wait(t)
			p.says(t, "task on "+l.nodes[1]+": right")
			p.says(t, "2 tasks: right")
			p.says(t, tt.says)
			t.Logf("%s", &p.out)
		})
	}
}

// testdata is the absolute path of a file of testdata.
func testdata(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
