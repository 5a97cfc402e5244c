package exntun

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"exnet/fabric"
	"exnet/fabric/pattern"
	"exnet/fabric/pattern/pfprof"
	"exnet/fabric/profile"
	"exnet/fabric/topo"
	"exnet/internal/cli"
	"exnet/node/control"
)

// checkProfile ends the profile of the nodes in dir: nodes 1 and 3 have sent each other
// at least so many bytes.
func checkProfile(t *testing.T, dir string, bytes uint64) {
	t.Helper()
	out := t.TempDir()
	file, heat, chord := filepath.Join(out, "run.json"), filepath.Join(out, "heat.svg"), filepath.Join(out, "chord.svg")
	if status, stdout, stderr := run(t.Context(), "profile", "stop", "--dir", dir, "-o", file, "--svg", heat, "--chord", chord); status != cli.ExitOK {
		t.Fatalf("profile stop: %d, %s%s", status, stdout, stderr)
	}
	p, duration, err := pattern.ReadFile(file)
	if err != nil || duration == 0 {
		t.Fatalf("%v, %v", duration, err)
	}
	all, err := pattern.ReadProcesses(file)
	if err != nil {
		t.Fatal(err)
	}
	between := make(map[[2]int]uint64)
	for _, f := range p.Flows {
		between[[2]int{*all[f.From].Node, *all[f.To].Node}] += f.Bytes
	}
	if between[[2]int{1, 3}] < bytes || between[[2]int{3, 1}] < bytes {
		t.Errorf("bytes by pair: %v, want %d between 1 and 3", between, bytes)
	}
	for _, f := range []string{heat, chord} {
		if text, err := os.ReadFile(f); err != nil || !strings.Contains(string(text), "1 to 3: ") {
			t.Errorf("%s: %v", f, err)
		}
	}
	if status, _, stderr := run(t.Context(), "profile", "read", "--dir", dir, "-o", "-"); status != cli.ExitFailure || !strings.Contains(stderr, "no profile is under way") {
		t.Errorf("read after the end: %d, %s", status, stderr)
	}
}

// What the nodes have counted becomes one: a rank for each mailbox.
func TestTrafficProcesses(t *testing.T) {
	r := newTraffic()
	flow := func(src, dst fabric.NodeID, unit string, sizes ...profile.Size) control.ProfileFlow {
		f := profile.Flow{Pair: profile.Pair{Src: src, SrcVPID: 1, Dst: dst, DstVPID: 1}, Unit: unit, Sizes: sizes}
		return control.ProfileFlow{Flow: f, Wire: topo.Counts{Packets: f.Messages(), Bytes: f.Bytes() + 16*f.Messages()}}
	}
	r.addProfile(1, &control.Profile{Seconds: 2, Flows: []control.ProfileFlow{
		flow(1, 2, profile.VELO, profile.Size{Size: 10, Count: 3}), flow(2, 1, profile.RMA, profile.Size{Size: 400, Count: 1}),
	}})
	r.addProfile(2, &control.Profile{Seconds: 3, Flows: []control.ProfileFlow{flow(2, 1, profile.VELO, profile.Size{Size: 10, Count: 1})},
		Multicasts: []control.ProfileMulticast{{Multicast: profile.Multicast{Src: 2, SrcVPID: 1, Members: []fabric.NodeID{1, 7}, Sizes: []profile.Size{{Size: 8, Count: 2}}}}}})
	tagged := flow(1, 2, profile.VELO, profile.Size{Size: 4, Count: 2})
	tagged.Class = 10
	r.addProfile(1, &control.Profile{Flows: []control.ProfileFlow{tagged, tagged}})
	r.addProfile(7, &control.Profile{})
	all := r.profileProcesses()
	if len(all) != 3 || all[2].Name != "node 7 vpid 0" || all[0].Duration != 3 {
		t.Fatalf("%+v", all)
	}
	if diff := cmp.Diff([]uint64{410, 0, 0}, all[1].TxBytes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]pfprof.SizeCount{{Size: 10, Count: 1}, {Size: 400, Count: 1}}, all[0].RxSizes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]pfprof.TreeCount{{Members: []int{1, 7}, Messages: 2, Bytes: 16}}, all[1].Trees); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]pfprof.ClassCount{{Class: 10, Bytes: []uint64{0, 16, 0}, Messages: []uint64{0, 4, 0}}}, all[0].Classes); diff != "" {
		t.Error(diff)
	}
	if all[0].WireBytes[1] != 30+48+2*(8+32) || all[0].TxBytes[1] != 30+16 || all[0].Events != 9 {
		t.Errorf("%+v", all[0])
	}
}

func TestProfileBadInput(t *testing.T) {
	for args, want := range map[string]string{
		"profile":                  "say what to do: start, read, stop",
		"profile start -o x.json":  "-o",
		"profile stop":             "name a file for the counts with -o, --svg or --chord",
		"profile stop -o x y":      `unexpected argument "y"`,
		"profile start --node x":   "node",
		"profile start --dir /nil": "no node is up",
	} {
		status, stdout, stderr := run(t.Context(), strings.Fields(args)...)
		if status == cli.ExitOK || stdout != "" {
			t.Errorf("%s: %d, %s", args, status, stdout)
		}
		oneLineOf(t, stderr, want)
	}
}
