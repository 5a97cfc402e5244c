package rpc

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/node/rpc/caller"
	"exnet/node/rpc/rpctest"
)

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("not so: %s", what)
		}
	}
}

// TestUsers has a user send far more than may wait: it takes one goroutine, is full until enough
// was closed, and nobody else is kept waiting or is full.
func TestUsers(t *testing.T) {
	var bins Bins
	const bad, good = caller.Account(1000), caller.Account(1001)
	end := make(chan struct{})
	before := runtime.NumGoroutine()
	for i := range 10 * Most {
		if full := bins.Full(bad); full != (i >= Most) {
			t.Fatalf("with %d: full %v", i, full)
		}
		bins.Do(bad, func() { <-end })
	}
	if n := runtime.NumGoroutine() - before; n > 1 {
		t.Errorf("%d goroutines wait", n)
	}
	closed := make(chan struct{})
	bins.Do(good, func() { close(closed) })
	<-closed
	if bins.Full(good) {
		t.Error("another user is full")
	}
	for range 10 * Most {
		bins.Do(caller.Root, func() { <-end })
	}
	if bins.Full(caller.Root) {
		t.Error("root is full")
	}
	close(end)
	eventually(t, "all are closed and forgotten", func() bool {
		bins.mu.Lock()
		defer bins.mu.Unlock()
		return len(bins.users) == 0
	})
	if bins.Full(bad) {
		t.Error("it is full for good")
	}
}

// TestThrow throws what takes an hour, what does not, and nothing.
func TestThrow(t *testing.T) {
	sum, last := 0, 0
	bin := NewBin(func(n int) { sum, last = sum+n, n }) // under its lock
	state := func() (int, int) {
		bin.mu.Lock()
		defer bin.mu.Unlock()
		return sum, last
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	slow, end := rpctest.Lingers(t)
	bin.Throw(-1, slow, pipe[1], -1)
	if n := bin.Len(); n != 2 {
		t.Errorf("%d wait", n)
	}
	if n, by := state(); n != 2 || by != 1 {
		t.Errorf("%d are counted, the last by %d", n, by)
	}
	end()
	eventually(t, "all are closed", func() bool { return bin.Len() == 0 })
	if n, by := state(); n != 0 || by != -1 {
		t.Errorf("%d are counted, the last by %d", n, by)
	}
	if n, err := unix.Read(pipe[0], make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("%d, %v: the pipe's end is open", n, err)
	}
}

// TestEndFd ends connections of a user whose first descriptor takes an hour: one in which no
// descriptor waits is closed at once, another has its turn.
func TestEndFd(t *testing.T) {
	const user caller.Account = 1000
	var bins Bins
	slow, end := rpctest.Lingers(t)
	bins.Throw(user, slow)
	closed := func(peer int) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(peer), Events: unix.POLLRDHUP}}, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n == 1 && unix.Send(peer, []byte("x"), unix.MSG_NOSIGNAL) != nil
	}
	waiting := func() int {
		bins.mu.Lock()
		defer bins.mu.Unlock()
		if u := bins.users[user]; u != nil {
			return u.open
		}
		return 0
	}
	for _, rights := range [][]byte{nil, unix.UnixRights(0)} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pair[1])
		if err := unix.Sendmsg(pair[1], []byte("hello"), rights, nil, 0); err != nil {
			t.Fatal(err)
		}
		before := waiting()
		bins.EndFd(user, pair[0])
		if !closed(pair[1]) {
			t.Error("the connection goes on")
		}
		if got, want := waiting()-before, min(len(rights), 1); got != want {
			t.Errorf("with %d bytes of rights %d more wait", len(rights), got)
		}
	}
	end()
	eventually(t, "all are closed", func() bool { return waiting() == 0 })
}
