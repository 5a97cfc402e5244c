package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"exnet/fabric"
	"exnet/internal/longtest"
	"exnet/internal/stats"
	"exnet/memory"
)

var rateTime = flag.Duration("memory.rate", 100*time.Millisecond, "how long each rate of memory of another host is measured, three times; docs/results/memory.md has 2s")

// busy is how long the CPUs of this machine have worked, all together.
func busy(t *testing.T) float64 {
	t.Helper()
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		t.Fatal(err)
	}
	s, err := proc.Stat()
	if err != nil {
		t.Fatal(err)
	}
	c := s.CPUTotal
	return c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ
}

// readers has n goroutines read 1 MiB at a time of a lease, and returns the MB/s.
func readers(t *testing.T, s *memory.Segment, size, n int) float64 {
	t.Helper()
	var all sync.WaitGroup
	var total atomic.Int64
	errs := make([]error, n)
	begin := time.Now()
	for i := range n {
		all.Go(func() {
			p := make([]byte, 1<<20)
			for ; errs[i] == nil && time.Since(begin) < *rateTime; total.Add(int64(len(p))) {
				_, errs[i] = s.ReadAt(p, int64(rand.IntN(size>>20))<<20)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return float64(total.Load()) / 1e6 / time.Since(begin).Seconds()
}

// A lease of another host, over TLS, is read as it was written, by one reader and by four. The test
// logs how fast that is and how much of it a busy core does, beside iperf3's TCP, in turn. The
// figures mean something only on a machine that does nothing else.
func TestRootHostsMemoryRate(t *testing.T) {
	longtest.Skip(t)
	need(t, "iperf3")
	checkLeaks(t)
	m := &farMemory{site: newSite(t)}
	m.key("ca", "--out", "ca")
	for i := 1; i <= 2; i++ {
		m.key("node", "--node", strconv.Itoa(i), "--ca", "ca", "--out", "node"+strconv.Itoa(i))
	}
	m.lends()
	borrower := m.up(2, "--join", m.at(1))
	m.linked(true, 1, 2)
	server := startIn(t, m.hosts[0], nil, "iperf3", "-s", "-p", iperfPort)
	server.listens(t, iperfPort)

	written := make([]byte, 64<<20)
	for i := range written {
		written[i] = byte(rand.Uint32())
	}
	var s *memory.Segment
	if err := m.hosts[1].Do(func() (err error) {
		s, err = memory.Borrow(t.Context(), memory.Config{Size: int64(len(written)), Node: new(fabric.NodeID(1))})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteAt(written, 0); err != nil {
		t.Fatal(err)
	}

	iperf := func() float64 {
		var r iperfResult
		out := m.in(m.hosts[1], "iperf3", "-c", m.at(1), "-p", iperfPort, "-R", "-J", "-t", fmt.Sprint(max(1, int(rateTime.Seconds()))))
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.Error != "" {
			t.Fatalf("%v %s", err, r.Error)
		}
		return r.End.SumReceived.Rate / 8e6
	}
	ways := []struct {
		name string
		move func() float64 // returns the MB/s
	}{
		{"iperf3", iperf},
		{"a lease", func() float64 { return readers(t, s, len(written), 1) }},
		{"a lease, four reads at a time", func() float64 { return readers(t, s, len(written), 4) }},
	}
	rates, perCore := make([][]float64, len(ways)), make([][]float64, len(ways))
	for range 3 {
		for i, way := range ways {
			begin, before := time.Now(), busy(t)
			rate := way.move()
			elapsed := time.Since(begin).Seconds()
			rates[i] = append(rates[i], rate)
			perCore[i] = append(perCore[i], rate*elapsed/max(busy(t)-before, 0.01))
		}
	}
	for i, way := range ways {
		t.Logf("%-30s %5.0f MB/s, a core %5.0f MB/s", way.name, stats.Summarize(rates[i]).Median, stats.Summarize(perCore[i]).Median)
	}

	got := make([]byte, len(written))
	if _, err := s.ReadAt(got, 0); err != nil || !bytes.Equal(got, written) {
		t.Errorf("the lease has other bytes: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	server.stop()
	for _, p := range []*process{m.lender, borrower} {
		p.terminate(t)
	}
}
