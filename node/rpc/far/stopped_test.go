package far

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
)

// stoppedChild is set in the process that TestStoppedWhileItWaits stops.
const stoppedChild = "EXNET_FAR_STOPPED"

// childStall is how long that process waits for a credit, while it runs.
const childStall = 3 * time.Second

// A process that is stopped while it waits for a credit has not waited meanwhile.
func TestStoppedWhileItWaits(t *testing.T) {
	if os.Getenv(stoppedChild) != "" {
		stopWhileWaiting(t)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestStoppedWhileItWaits$")
	cmd.Env = append(os.Environ(), stoppedChild+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the process did not stop: %v, %#x\n%s", err, status, out.String())
	}
	time.Sleep(childStall + time.Second)
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// stopWhileWaiting stops its own process while a message waits for a credit. The peer takes
// messages a moment after the process goes on.
func stopWhileWaiting(t *testing.T) {
	cards := fabrictest.New(t, 2)
	goOn := stopped(t, cards[1])
	e := run(t, cards[0], Config{VPID: VPID, Direct: true, Hear: func(fabric.NodeID, uint64, []byte) {}})
	if err := send(e, 1, []byte("x")); err != nil {
		t.Fatal(err)
	}
	up(e, 1)
	setStall(e, childStall)
	sent := make(chan error)
	go func() {
		for i := range 2*waitingBytes/MaxMessage + 2 { // more than may wait, here and in the mailbox
			if err := send(e, 1, make([]byte, MaxMessage)); err != nil {
				sent <- fmt.Errorf("message %d: %w", i, err)
				return
			}
		}
		sent <- nil
	}()
	for e.box.Credits(1, VPID) >= credits/2 { // those that remain are not enough to go on
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // it waits by now; if not, the test finds less
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	goOn()
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// A session whose process was stopped goes on to wait for its greeting, for nine parts of the
// time.
func TestStoppedGreeting(t *testing.T) {
	e := &Engine{stall: time.Hour, sessions: make(map[fabric.NodeID]*session), links: make(map[fabric.NodeID]uint64), stalled: make(map[fabric.NodeID]time.Time),
		givenUp: make(map[fabric.NodeID]struct{}), ended: func(fabric.NodeID, uint64) {}}
	e.credit.L = &e.mu
	e.mu.Lock()
	s := e.newSessionLocked(1)
	s.patience.timer.Stop() // the test says when a part has ended, which is once for each stop
	e.mu.Unlock()
	for part := 1; part <= patienceParts; part++ {
		if s.state == stateOver {
			t.Fatalf("it is over after %d parts of %d", part-1, patienceParts)
		}
		e.expireSession(s)
	}
	if s.state != stateOver {
		t.Error("it waits for ever")
	}
	s.patience.timer.Stop()
}
