package dsbench

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"exnet/internal/netns/netnstest"
	"exnet/internal/tun"
)

// requireExn skips the test, and says why, where exn0 cannot be had.
func requireExn(t *testing.T) {
	t.Helper()
	netnstest.Require(t)
	ns := netnstest.New(t)
	err := ns.Do(func() error {
		dev, err := tun.Open(tun.Config{Name: "exn0", MTU: 1500})
		if err != nil {
			return err
		}
		return dev.Close()
	})
	if err != nil {
		t.Skip(err)
	}
}

func TestRootRunExn(t *testing.T) {
	requireExn(t)
	netnstest.CheckFDs(t)
	for _, words := range []string{
		"stream --paths veth,exn",
		"stream --paths veth,exn --streams 2 --no-fast-path",
		"pingpong --paths veth,exn",
	} {
		status, stdout, stderr := runProgram(t.Context(), words+short)
		if status != 0 || stderr != "" {
			t.Fatalf("dsbench %s: status %d, %s", words, status, stderr)
		}
		rows := decodeRows(t, stdout)
		checkRows(t, rows, "veth", "exn")
		if r := rows[1]; r.MTU != 65535 || r.NoFastPath != strings.Contains(words, "no-fast-path") {
			t.Errorf("row %+v", r)
		}
		noChildren(t)
	}
}

func TestRootRunExnMTU(t *testing.T) {
	requireExn(t)
	status, stdout, stderr := runProgram(t.Context(), "pingpong --paths exn --control exn --mtu 9000"+short)
	if status != 0 {
		t.Fatalf("status %d, %s", status, stderr)
	}
	if rows := decodeRows(t, stdout); len(rows) != 1 || rows[0].MTU != 9000 {
		t.Errorf("rows %+v", rows)
	}
}

// TestRootExnCountsTheNode: the process that carries the packets is counted.
func TestRootExnCountsTheNode(t *testing.T) {
	requireExn(t)
	p := newExn(NodeConfig{}).(*exnPath)
	if err := p.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	spec := StreamSpec{Spec: Spec{Size: 65536, Duration: 100 * time.Millisecond, Congestion: "cubic", CPUs: Placement{anyCPU, anyCPU}}, Streams: 1}
	before := processTime(p.node)
	with, err := p.Stream(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if used := processTime(p.node) - before; used <= 0 || with.CPU <= 0 {
		t.Errorf("the node used %v, the path %v CPUs", used, with.CPU)
	}
}

// TestRootExnNodeDies: a measurement under way ends at once and says why.
func TestRootExnNodeDies(t *testing.T) {
	requireExn(t)
	netnstest.CheckFDs(t)
	p := newExn(NodeConfig{}).(*exnPath)
	if err := p.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(300*time.Millisecond, p.worker.kill)
	defer timer.Stop()
	start := time.Now()
	_, err := p.PingPong(t.Context(), PingPongSpec{Spec{Size: 64, Duration: time.Minute, Congestion: "cubic", CPUs: Placement{anyCPU, anyCPU}}})
	if err == nil || !strings.Contains(err.Error(), "the process of the nodes ended: a worker ended without a result (signal: killed)") {
		t.Errorf("error %v", err)
	}
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("it took %v to notice", d)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	noChildren(t)
}

func TestExnSetupFails(t *testing.T) {
	netnstest.CheckFDs(t)
	p := newExn(NodeConfig{MTU: 1}) // what the options do not let through
	err := p.Setup(t.Context())
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	noChildren(t)
}

// TestWithoutTUN: the hint is given where it helps, behind what tun says.
func TestWithoutTUN(t *testing.T) {
	refused := fmt.Errorf("exn0: %w: run as root", tun.ErrUnavailable)
	want := refused.Error() + ", or use the netstack path, which needs none"
	if err := withoutTUN(refused); !errors.Is(err, tun.ErrUnavailable) || err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	other := errors.New("other")
	if err := withoutTUN(other); err != other {
		t.Errorf("error %v, want %v", err, other)
	}
}

func TestRunNetstack(t *testing.T) {
	for _, words := range []string{
		"stream --paths netstack --control netstack",
		"stream --paths netstack --control netstack --streams 3 --size 1k --mtu 1500",
		"pingpong --paths netstack --control netstack --congestion reno",
	} {
		netnstest.CheckFDs(t)
		status, stdout, stderr := runProgram(t.Context(), words+short)
		if status != 0 || stderr != "" {
			t.Fatalf("dsbench %s: status %d, %s", words, status, stderr)
		}
		rows := decodeRows(t, stdout)
		checkRows(t, rows, "netstack")
		if rows[0].Placement != "any" {
			t.Errorf("row %+v", rows[0])
		}
		noChildren(t)
	}
}

// TestNetstackInProcess runs the worker's part where the race and leak
// detectors see it.
func TestNetstackInProcess(t *testing.T) {
	for _, r := range []role{roleNetstackStream, roleNetstackPingPong} {
		j := testJob(t, r)
		j.Congestion = "cubic"
		result, err := doJob(j, nil)
		if err != nil {
			t.Fatalf("%s: %v", r, err)
		}
		if result.Bytes <= 0 || result.Seconds <= 0 || (result.RoundTrips != nil) != (r == roleNetstackPingPong) {
			t.Errorf("%s: %+v", r, result)
		}
	}
	j := testJob(t, roleNetstackStream)
	j.Congestion = "bbr"
	if _, err := doJob(j, nil); err == nil || !strings.Contains(err.Error(), "bbr") {
		t.Errorf("bbr: %v", err)
	}
}

// TestRootNodeInProcess does the same for the nodes.
func TestRootNodeInProcess(t *testing.T) {
	requireExn(t)
	end := make(chan struct{})
	var got nodeReply
	_, err := runNode(NodeConfig{MTU: 9000}, func(r reply) error {
		got = *r.Node
		close(end)
		return nil
	}, end)
	if err != nil {
		t.Fatal(err)
	}
	if got.MTU != 9000 || !got.Addrs[0].IsValid() || got.Addrs[0] == got.Addrs[1] || got.Namespaces[0] == got.Namespaces[1] {
		t.Errorf("nodes %+v", got)
	}
	refused := errors.New("nobody listens")
	if _, err := runNode(NodeConfig{}, func(reply) error { return refused }, nil); !errors.Is(err, refused) {
		t.Errorf("error %v, want %v", err, refused)
	}
}
