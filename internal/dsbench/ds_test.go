package dsbench

import (
	"strings"
	"testing"
	"time"

	"exnet/directsockets/broker"
	"exnet/internal/netns/netnstest"
	"exnet/internal/tcpbench"
)

// noBroker says why direct sockets cannot be had here, "" if they can.
func noBroker(t *testing.T) string {
	t.Helper()
	s, err := broker.New(broker.Config{Path: t.TempDir() + "/b"})
	if err != nil {
		return err.Error()
	}
	s.Close()
	return ""
}

func TestRunDS(t *testing.T) {
	if why := noBroker(t); why != "" {
		t.Skip(why)
	}
	left := temporary(t)
	netnstest.CheckFDs(t)
	// Long enough for a connection to become direct.
	flags := " --paths lo,ds --duration 50ms --warmup 100ms --runs 2 --json --congestion " + congestion(t)
	zero := strings.Replace(flags, "lo,ds", "lo,ds-zcopy", 1)
	for _, words := range []string{
		"stream" + flags, "pingpong" + flags, "rate --direction in" + flags, "crr --streams 2" + flags, "cpu" + flags,
		"stream --size 64k" + zero, "pingpong --size 4k" + zero, "rate --size 1k --direction in" + zero,
	} {
		status, stdout, stderr := runProgram(t.Context(), words)
		if status != 0 || stderr != "" {
			t.Fatalf("dsbench %s: status %d, %s", words, status, stderr)
		}
		path := "ds"
		if strings.HasSuffix(words, zero) {
			path = "ds-zcopy"
		}
		checkRows(t, decodeRows(t, stdout), "lo", path)
		noChildren(t)
		if l := left(); len(l) > 0 {
			t.Errorf("left behind: %v", l)
		}
	}
}

func TestRootRunDSExn(t *testing.T) {
	requireExn(t)
	status, stdout, stderr := runProgram(t.Context(), "stream --paths exn,ds-exn --control exn --duration 50ms --warmup 200ms --runs 2 --json")
	if status != 0 || stderr != "" {
		t.Fatalf("status %d, %s", status, stderr)
	}
	checkRows(t, decodeRows(t, stdout), "exn", "ds-exn")
	noChildren(t)
}

// TestDSOverTCPFails: a row that was not direct is none.
func TestDSOverTCPFails(t *testing.T) {
	if why := noBroker(t); why != "" {
		t.Skip(why)
	}
	p := newDS(tcpbench.Direct)(NodeConfig{})
	if err := p.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	spec := tcpbench.Spec{
		Kind: tcpbench.Stream, Size: 65536, Streams: 1, Duration: 50 * time.Millisecond,
		Congestion: congestion(t), CPUs: tcpbench.Anywhere(),
	}
	spec.Plain = true
	_, err := p.Measure(t.Context(), spec)
	if err == nil || !strings.Contains(err.Error(), "the direct path was not used: ") || !strings.Contains(err.Error(), "bytes went over TCP") {
		t.Errorf("error %v", err)
	}
}

// TestDSWithoutBroker: the error says what is missing.
func TestDSWithoutBroker(t *testing.T) {
	p := tcpbench.Between(tcpbench.End{Addr: loopback}, tcpbench.End{Addr: loopback})
	spec := tcpbench.Spec{
		Kind: tcpbench.Stream, Size: 64, Streams: 1, Duration: time.Millisecond, Congestion: congestion(t),
		Transport: tcpbench.Direct, CPUs: tcpbench.Anywhere(),
	}
	spec.Broker = t.TempDir() + "/nobody"
	if _, err := p.Measure(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "broker of direct sockets: ") {
		t.Errorf("error %v", err)
	}
}
