package udp

import (
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/shm"
)

// without runs f while this process can open no descriptor.
func without(t *testing.T, f func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// Where a process has no descriptor left to ask the kernel by, no end of a flow takes the other
// for another socket: datagrams that the kernel carried then would pass those in memory.
func TestNoDescriptor(t *testing.T) {
	s, tx := receiverOfOne(t)
	f := s.in.flows[0]
	if _, ok := s.Receive(make([]byte, 10)); !ok || !f.used {
		t.Fatal("no check is due")
	}
	info := tx.Info()
	cookie, err := peerOf(info.From, info.To)
	if err != nil {
		t.Fatal(err)
	}
	out := &outflow{to: info.To, phase: outUp, tx: tx, cookie: cookie, entry: (*connstats.Table)(nil).Alloc(connstats.EntryInfo{})}
	without(t, func() {
		if _, err := peerOf(info.From, info.To); !mayPass(err) {
			t.Errorf("the kernel is asked all the same: %v", err)
		}
		s.in.checked = shm.Nanotime() - int64(2*checkTime)
		if s.in.checkSenders(); f.phase != inMemory {
			t.Errorf("the receiver's end is %v", f.phase)
		}
		out.mu.Lock()
		defer out.mu.Unlock()
		if !out.mayBeDirect(s) || out.phase != outUp {
			t.Errorf("the sender's end is %v", out.phase)
		}
	})
	if !hasMoved(info.From, info.To, cookie+1) {
		t.Error("another socket with the address is not noticed")
	}
}

// A socket whose flows have ended takes no lock to receive any more.
func TestIdleAgain(t *testing.T) {
	s, tx := receiverOfOne(t)
	tx.Close()
	if d, ok := s.Receive(make([]byte, 10)); !ok || d.N != 1 {
		t.Fatal("what was in memory is lost")
	}
	s.in.checked = 0
	if _, ok := s.Receive(make([]byte, 10)); ok || len(s.in.flows) > 0 {
		t.Fatalf("%d flows are left", len(s.in.flows))
	}
	if s.in.nonEmpty.Load() {
		t.Error("the next call looks for flows")
	}
	if n := s.in.waiting.Load(); n != 1 {
		t.Errorf("%d calls are counted", n)
	}
	// A flow that comes later is found.
	_, g := ends(t, tx.Info().From, tx.Info().To)
	s.in.mu.Lock()
	if !s.in.on(setupListen) || !s.in.on(setupClaim) {
		t.Fatal("no step")
	}
	s.in.mu.Unlock()
	s.in.takeAnswer(0, g, nil)
	if !s.in.nonEmpty.Load() || len(s.in.flows) != 1 {
		t.Error("a flow is not looked for")
	}
}
