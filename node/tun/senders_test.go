package tun_test

import (
	"net"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/internal/netns/netnstest"
	"exnet/node/tun"
)

// Packets are counted, on the CPU that sends them, and pass.
func TestRootSenders(t *testing.T) {
	require(t)
	n := netnstest.New(t)
	d := openIn(t, n, tun.Config{})
	configure(t, n, d, "10.2.0.1/24")
	s, err := d.WatchSenders()
	if err != nil {
		t.Skip(err)
	}
	defer s.Close()
	s.Main()
	if cpu := s.Main(); cpu != -1 {
		t.Errorf("without packets, CPU %d sends", cpu)
	}
	buf := make([]byte, tun.BufferLen)
	drain := func() (packets int) {
		for {
			if _, err := d.Read(buf); err != nil {
				return packets
			}
			packets++
		}
	}
	for cpu := range min(runtime.NumCPU(), 2) {
		drain()
		s.Main()
		before := s.Sent()
		if err := n.Do(func() error { return sendOn(cpu, 100) }); err != nil {
			t.Fatal(err)
		}
		got, sent := drain(), s.Sent()-before
		if got < 100 {
			t.Errorf("%d packets, want 100", got)
		}
		if got += drain(); sent != uint64(got) && s.Sent()-before != uint64(got) {
			t.Errorf("%d packets are counted, %d were read", sent, got)
		}
		if got := s.Main(); got != cpu {
			t.Errorf("CPU %d, want %d", got, cpu)
		}
	}
}

// sendOn sends packets on a CPU. The calling goroutine is locked to its thread.
func sendOn(cpu, packets int) error {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return err
	}
	defer unix.SchedSetaffinity(0, &all)
	c, err := net.Dial("udp", "10.2.0.2:9")
	if err != nil {
		return err
	}
	defer c.Close()
	for range packets {
		if _, err := c.Write([]byte("packet")); err != nil {
			return err
		}
	}
	return nil
}

// The time of the first packet since the last call is noted, with the CPU that sent it.
func TestRootSendersTake(t *testing.T) {
	require(t)
	n := netnstest.New(t)
	d := openIn(t, n, tun.Config{})
	configure(t, n, d, "10.2.0.1/24")
	s, err := d.WatchSenders()
	if err != nil {
		t.Skip(err)
	}
	defer s.Close()
	now := func() uint64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		return uint64(ts.Nano())
	}
	s.Take()
	before := now()
	if err := n.Do(func() error { return sendOn(0, 3) }); err != nil {
		t.Fatal(err)
	}
	after := now()
	// The kernel may send packets of its own meanwhile, from another CPU.
	if cpu, first := s.Take(); cpu > 0 || first < before || first > after {
		t.Errorf("CPU %d at %d, want 0, from %d to %d", cpu, first, before, after)
	}
	after = now()
	if _, first := s.Take(); first != 0 && first < after {
		t.Errorf("the time %d is there once more", first)
	}
}
