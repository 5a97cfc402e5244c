package shm_test

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric/fabrictest"
)

// Both sides may ask, many at a time, and nobody waits for a link that is down.
func TestRTT(t *testing.T) {
	_, _, lx, ly := pair(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if d := lx.RTT(time.Minute); d <= 0 || d >= time.Minute {
				t.Errorf("round trip of %v", d)
			}
			if d := ly.RTT(time.Minute); d <= 0 || d >= time.Minute {
				t.Errorf("round trip of %v", d)
			}
		})
	}
	wg.Wait()
	if err := lx.Close(); err != nil {
		t.Fatal(err)
	}
	<-lx.Done()
	if d := lx.RTT(time.Minute); d != 0 {
		t.Errorf("round trip of %v over a closed link", d)
	}
	if s := lx.Stats(); s.TxBytes != 0 || s.RxBytes != 0 {
		t.Errorf("closed: %+v", s)
	}
}

// A process that is stopped does not answer, and its answer is not lost.
func TestRTTStopped(t *testing.T) {
	for _, kind := range []string{"", driven} {
		t.Run(kind, func(t *testing.T) {
			p := spawn(t, kind+"serve:64")
			var nla uint64
			p.line(t, &nla)
			if d := p.link.RTT(time.Minute); d <= 0 {
				t.Fatalf("round trip of %v", d)
			}
			if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			var ws unix.WaitStatus // until all its threads have stopped
			if _, err := unix.Wait4(p.cmd.Process.Pid, &ws, unix.WUNTRACED, nil); err != nil || !ws.Stopped() {
				t.Fatal(err, ws)
			}
			if d := p.link.RTT(time.Millisecond); d != 0 {
				t.Errorf("round trip of %v with a stopped process", d)
			}
			if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			fabrictest.Eventually(t, "answer", func() bool { return p.link.RTT(time.Second) > 0 })
		})
	}
}
