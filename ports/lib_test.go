package ports

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"exnet/fabric"
	"exnet/internal/longtest"
	"exnet/internal/steps/stepstest"
)

// What the API does, as golden values, and small programs on it: in plain form and under the
// sanitizers.
func TestLibraries(t *testing.T) {
	threaded := []string{"plain", "asan", "tsan"}
	for _, tt := range []struct {
		args  []string
		kinds []string
	}{
		{[]string{"golden"}, threaded[:2]},
		{[]string{"regions"}, threaded[:2]},
		{[]string{"messages"}, threaded[:2]},
		{[]string{"frames"}, threaded},
		{[]string{"store", "threads"}, threaded},
		{[]string{"store", "processes"}, threaded[:1]},
	} {
		for _, kind := range tt.kinds {
			t.Run(strings.Join(append(tt.args, kind), "-"), func(t *testing.T) {
				n := nodes(t, 1)[0]
				n.run(t, kind, tt.args...)
				n.idle(t)
			})
		}
	}
}

// The same under clang's MemorySanitizer.
func TestUninitialized(t *testing.T) {
	longtest.Skip(t) // builds everything once more
	if _, err := exec.LookPath("clang"); err != nil {
		t.Skip("no clang, which has MemorySanitizer")
	}
	testProgram(t, "asan", "golden") // makes buildDir
	if out, err := exec.CommandContext(t.Context(), "make", "-s", "-j2", "-C", "lib", "BUILD="+buildDir, "msan").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, program := range []string{"golden", "regions", "messages", "frames", "store threads", "hosts"} {
		t.Run(program, func(t *testing.T) {
			_, all := newHosts(t, 2)
			args := strings.Fields(program)
			if program == "hosts" {
				args = append(args, all[0].processes, all[1].processes)
			}
			all[0].run(t, "msan", args...)
			for _, h := range all {
				h.idle(t)
			}
		})
	}
}

// The same at two nodes.
func TestRegionsOfNodes(t *testing.T) {
	all := nodes(t, 2)
	all[0].run(t, "asan", "regions", all[1].processes)
	for _, n := range all {
		n.idle(t)
	}
}

// Multicast: the node says who the members of a group are, and each of them that has opened the
// VPID gets what is sent to it.
func TestGroups(t *testing.T) {
	members := func(g fabric.GroupID) []fabric.NodeID {
		if g == 5 {
			return []fabric.NodeID{2, 3, 4}
		}
		return nil
	}
	for _, kind := range []string{"plain", "asan"} {
		t.Run(kind, func(t *testing.T) {
			all := nodes(t, 3, func(c *Config) { c.Members = members })
			all[0].run(t, kind, "groups", all[0].processes, all[1].processes, all[2].processes)
			for _, n := range all {
				n.idle(t)
			}
		})
	}
}

// The benchmark's programs run, and the node counts what goes through their ports; how fast is not
// a matter of this test.
func TestPingPong(t *testing.T) {
	n := nodes(t, 1)[0]
	for _, args := range [][]string{{"velo", "2000"}, {"rma", "200"}, {"register", "3"}, {"place", "50"}} {
		t.Log(n.run(t, "plain", append([]string{"pingpong"}, args...)...))
		n.idle(t)
	}
	got := n.Stats()
	const messages = 2 * (2000 + 200) // from each end, with those that warm up
	if got.Opened != 7 || got.VELOSent != messages || got.VELOReceived != messages {
		t.Errorf("%+v, want 5 ports and %d messages", got, messages)
	}
	const bytes = 3 * 200 * 64 << 10 // in three passes
	if got.RMAPutBytes < bytes || got.RMAGetBytes < bytes || got.RMASent == 0 || got.RMAReceived < got.RMASent {
		t.Errorf("%+v, want %d bytes each way", got, bytes)
	}
}

// SPEC.md has the steps of the library's ports and of what they have of peers, and only state.c
// takes them.
func TestLibrarySteps(t *testing.T) {
	testProgram(t, "plain", "states")
	out, err := exec.CommandContext(t.Context(), filepath.Join(buildDir, "plain", "states")).Output()
	if err != nil {
		t.Fatal(err)
	}
	stepstest.Compare(t, "9.2", strings.Split(strings.TrimSpace(string(out)), "\n"), stepstest.Rows(t, "SPEC.md", "9.2", nil))
	for _, files := range []string{"lib/core/*.c", "lib/*/*.[ch]"} {
		stepstest.Owner(t, files, "state.c", `\*at = \(enum exn_|(->|\.)state\s*=[^=]`)
	}
}
