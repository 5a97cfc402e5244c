package pairing_test

import (
	"io"
	"net"
	"testing"

	"exnet/internal/netns/netnstest"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A connection on loopback that is made and ended, and how long the program takes for both of its
// ends, over all calls.
func BenchmarkRootConnect(b *testing.B) {
	n := netnstest.New(b)
	ip(b, n, "ip link set lo up")
	p := newPairs(b)
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Skip(err)
	}
	defer stats.Close()
	if err := n.Do(func() error { return connections(b) }); err != nil {
		b.Fatal(err)
	}
	s, err := p.Program().Stats()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(s.Runtime.Nanoseconds())/float64(b.N), "program-ns/op")
	b.ReportMetric(float64(s.RunCount)/float64(b.N), "calls/op")
}

func connections(b *testing.B) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	for b.Loop() {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			return err
		}
		s, err := ln.Accept()
		if err != nil {
			return err
		}
		c.Close()
		_, _ = io.Copy(io.Discard, s)
		s.Close()
	}
	return nil
}
