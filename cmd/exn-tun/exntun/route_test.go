package exntun

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"exnet/fabric"
	"exnet/fabric/routing"
	"exnet/fabric/topo"
	"exnet/internal/cli"
	"exnet/internal/netns/netnstest"
	"exnet/node/control"
	"exnet/node/daemon"
	"exnet/test/testlab"
)

// corners starts two opposite corners of a square, nodes 1 and 4, and returns the fabric's
// directory and the first of them.
func corners(t *testing.T) (dir string, a *upNode) {
	t.Helper()
	leavesNothing(t)
	testlab.RequireTUN(t)
	dir = filepath.Join(t.TempDir(), "lab")
	args := []string{"--dir", dir, "--topology", "mesh:2x2"}
	a = startUp(t, netnstest.New(t), append(args, "--addr", "10.2.0.1/24")...)
	startUp(t, netnstest.New(t), append(args, "--addr", "10.2.0.4/24", "--node", "4")...)
	eventually(t, "ping", func() bool { return pings(a.ns, "10.2.0.4") })
	return dir, a
}

// Two corners of a square: what one sends the other goes by x, and by y once the traffic
// of a pattern has the link in x, until that is released.
func TestRootRoute(t *testing.T) {
	dir, a := corners(t)
	file := filepath.Join(t.TempDir(), "p.csv")
	if err := os.WriteFile(file, []byte("1,2,2000\n1,4,1000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	call := func(want string, args ...string) {
		t.Helper()
		status, stdout, stderr := run(t.Context(), append(append([]string{"route"}, args...), "--dir", dir)...)
		if status != cli.ExitOK || !strings.Contains(stdout, want) {
			t.Fatalf("%v: %d, %s%s; want %q", args, status, stdout, stderr, want)
		}
	}
	// goesBy wants a ping, with options, to load the link from 1 to a node alone: in the end, as
	// the kernel may send something else meanwhile.
	goesBy := func(want fabric.NodeID, options ...string) {
		t.Helper()
		eventually(t, fmt.Sprintf("ping %v by node %d alone", options, want), func() bool {
			before := leaving(t, dir)
			if a.ns.Run(exec.Command("ping", append(options, "-c", "1", "-W", "1", "10.2.0.4")...)) != nil {
				return false
			}
			after := leaving(t, dir)
			return after[want] > before[want] && after[5-want] == before[5-want]
		})
	}
	goesBy(2)
	call("p.csv: 2 pairs of nodes, 1 with routes of their own, on 2 nodes; largest load of a link 3000 bytes by the tables, 2000 now", "reserve", "--pattern", file)
	call("p.csv        1          -      0    -", "list")
	goesBy(3)
	if status, _, stderr := run(t.Context(), "route", "reserve", "--pattern", file, "--dir", dir); status != cli.ExitFailure || !strings.Contains(stderr, `"p.csv"`) {
		t.Errorf("twice: %d, %s", status, stderr)
	}
	call("", "release", "--id", "p.csv")
	goesBy(2)
	// Packets of a class have a route of their own, there and back, and others do not: also
	// beside routes of all, which must not move them.
	goesBy(2, "-Q", "0x28")
	call("alltoall: 2 pairs of nodes, 2 with routes of their own, on 2 nodes", "reserve", "--primitive", "alltoall", "--nodes", "1,4", "--via", "3", "--tag", "10")
	call("alltoall     2          10     0    -", "list")
	call(`{"adaptive":[],"reservations":[{"id":"alltoall","overrides":[{"from":1,"to":4,"class":10,"ports":[`, "list", "--json")
	call(`}],"missing":[]}]}`, "list", "--json")
	goesBy(3, "-Q", "0x28")
	goesBy(2)
	call("", "release", "--id", "alltoall")
	call(`{"adaptive":[],"reservations":[]}`, "list", "--json")
	for _, bad := range [][]string{{"release", "--id", "p.csv"}, {"reserve", "--pattern", file, "--router", "best"}, {"reserve", "--pattern", "none.csv"}} {
		if status, _, stderr := run(t.Context(), append(append([]string{"route"}, bad...), "--dir", dir)...); status != cli.ExitFailure || stderr == "" {
			t.Errorf("%v: %d, %s", bad, status, stderr)
		}
	}
}

// leaving is what has left node 1, by where it went.
func leaving(t *testing.T, dir string) map[fabric.NodeID]uint64 {
	t.Helper()
	status, stdout, stderr := run(t.Context(), "topo", "--dir", dir, "--json")
	var f control.Topology
	if err := json.Unmarshal([]byte(stdout), &f); status != cli.ExitOK || err != nil {
		t.Fatalf("%d, %v: %s", status, err, stderr)
	}
	sum := make(map[fabric.NodeID]uint64)
	for _, l := range f.Links {
		if l.A == 1 {
			sum[l.B] += l.AB.Bytes
		}
	}
	return sum
}

// What is planned is possible, lowers the largest load, and closes no cycle.
func TestPlans(t *testing.T) {
	built, err := daemon.ParseTopology("torus:4x4")
	if err != nil {
		t.Fatal(err)
	}
	routes, err := topo.NewRoutes(built)
	if err != nil {
		t.Fatal(err)
	}
	var flows []routing.Flow
	for i := range int32(16) { // the transpose: dimension order's worst
		if to := i%4*4 + i/4; to != i {
			flows = append(flows, routing.Flow{From: i, To: to, Bytes: uint64(100 + i)})
		}
		flows = append(flows, routing.Flow{From: i, To: (i + 5) % 16, Bytes: 50})
	}
	for _, router := range []string{"refine", "minmax", "minsum", "random", "dmodk", "alg3"} {
		p, err := planRoutes(routes, wish{router: router}, flows, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.overrides) == 0 || p.before == 0 || (router == "minmax" || router == "refine") && p.after >= p.before {
			t.Errorf("%s: %d overrides, %d to %d", router, len(p.overrides), p.before, p.after)
		}
		if _, err := routes.With(p.overrides); err != nil {
			t.Errorf("%s: %v", router, err)
		}
		again, err := planRoutes(routes, wish{router: router}, flows, p.overrides)
		if err != nil || len(again.overrides)+again.refused < len(p.overrides) {
			t.Errorf("%s beside itself: %d of %d, %v", router, len(again.overrides), len(p.overrides), err)
		}
	}
}

// Paths round a ring would wait for each other: they are spread over the layers, and what
// finds no layer is refused.
func TestLayers(t *testing.T) {
	l := newLayers()
	placed := 0
	for range 6 {
		for i := range int32(4) { // four channels in a ring, each path two of them
			if l.placePath([]int32{i, (i + 1) % 4}) {
				placed++
			}
		}
	}
	if l.dependencies.Cyclic() {
		t.Error("there is a cycle")
	}
	if placed < 12 {
		t.Errorf("%d paths", placed)
	}
	full := newLayers()
	ring := func(n int32) (path []int32) {
		for i := range int32(4) {
			path = append(path, (i+n)%4)
		}
		return path
	}
	refused := 0
	for range 2 {
		for i := range int32(4) {
			if !full.placePath(ring(i)) {
				refused++
			}
		}
	}
	if refused > 0 || full.dependencies.Cyclic() { // one way round for each layer
		t.Errorf("%d refused", refused)
	}
	if full.placePath([]int32{0, 1, 2, 3, 0}) {
		t.Error("a path that waits for itself was placed")
	}
}

func TestRouteBadInput(t *testing.T) {
	built, err := daemon.ParseTopology("mesh:2")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "p.csv")
	if err := os.WriteFile(file, []byte("1,2,5\n1,7,5\n9,1,5\n9,2,5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = nodeFlows(file, built)
	if err == nil || strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), "node 7, which is not in the topology") || !strings.Contains(err.Error(), "node 9") {
		t.Errorf("nodes that are not there: %v", err)
	}
	for args, want := range map[string]string{
		"route":                                "say what to do: reserve, release, list, adaptive, page",
		"route reserve":                        "name the traffic with --pattern or --primitive",
		"route release --dir /nil":             "name the reservation with --id",
		"route list --dir /nil":                "no node is up",
		"route reserve --pattern x --dir /nil": "no node is up",
	} {
		status, stdout, stderr := run(t.Context(), strings.Fields(args)...)
		if status == cli.ExitOK || stdout != "" {
			t.Errorf("%s: %d, %s", args, status, stdout)
		}
		oneLineOf(t, stderr, want)
	}
}

// Jobs reserve routes for as long as a process lives: several at a time, also for the same nodes.
// However a process ends, its routes are released.
func TestRootRouteWhile(t *testing.T) {
	dir, _ := corners(t)
	ids := func() (all []string) {
		_, stdout, _ := run(t.Context(), "route", "list", "--json", "--dir", dir)
		var l listed
		if err := json.Unmarshal([]byte(stdout), &l); err != nil {
			t.Fatalf("%s: %v", stdout, err)
		}
		for _, r := range l.Reservations {
			all = append(all, r.ID)
		}
		slices.Sort(all)
		return all
	}
	const jobs = 3
	var programs []*exec.Cmd
	var said [jobs]*buffer
	var reserving []*exec.Cmd
	for i := range jobs {
		sleep := exec.Command("sleep", sleepArg())
		if err := sleep.Start(); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, sleep)
		c, stdout, stderr := programCommand("route", "reserve", "--dir", dir, "--primitive", "alltoall", "--nodes", "1,4", "--via", "3",
			"--id", fmt.Sprint("job", i), "--while", fmt.Sprint(sleep.Process.Pid))
		said[i] = stdout
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		reserving = append(reserving, c)
		t.Cleanup(func() { // if the test has failed before
			_ = sleep.Process.Kill()
			if stderr.String() != "" {
				t.Errorf("job %d: %s", i, stderr)
			}
		})
	}
	left := 0
	for i, c := range reserving {
		if err := c.Wait(); err != nil || !strings.HasPrefix(said[i].String(), fmt.Sprint("job", i, ": 2 pairs of nodes, ")) {
			t.Fatalf("job %d: %v, %q", i, err, said[i])
		}
		if strings.Contains(said[i].String(), "left to other reservations") {
			left++
		}
	}
	if got := fmt.Sprint(ids()); got != "[job0 job1 job2]" || left != jobs-1 {
		t.Errorf("reservations %s; %d leave routes to others", got, left)
	}
	for i, sleep := range programs {
		if err := sleep.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = sleep.Wait() // it was killed
		eventually(t, "released", func() bool { return !slices.Contains(ids(), fmt.Sprint("job", i)) })
	}
}
