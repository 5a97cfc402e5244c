package rpc

import (
	"errors"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/internal/netns/netnstest"

	"golang.org/x/sys/unix"
)

// TestOutboxKeepsOrder fills a socket whose reader is late.
func TestOutboxKeepsOrder(t *testing.T) {
	netnstest.NeedFDs(t, 8000)
	netnstest.CheckFDs(t)
	ends := brokertest.SocketPair(t)
	defer ends[1].Close()
	out, err := NewOutbox(ends[0], 3000)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	tr := brokertest.NewTracer(t)
	sent := 0
	for ; ; sent++ {
		err := out.Post([]byte{byte(sent), byte(sent >> 8)}, tr.W)
		if errors.Is(err, ErrSlow) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if sent <= 3000 {
		t.Errorf("only %d packets", sent)
	}
	if err := out.Offer([]byte{1}); err != ErrBusy {
		t.Errorf("past those that wait: %v", err)
	}
	in, err := NewInbound(ends[1], 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	ends[1].SetReadDeadline(time.Now().Add(3 * time.Minute))
	for n := range sent {
		b, fds, err := in.Next()
		if err != nil || len(fds) != 1 || int(b[0])|int(b[1])<<8 != n {
			t.Fatalf("packet %d: %v, %d descriptors, %v", n, b, len(fds), err)
		}
		if flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Fatalf("packet %d: children inherit its descriptor: %#x, %v", n, flags, err)
		}
		fds.Close()
		if n == sent/2 { // it takes more, behind the others
			brokertest.Eventually(t, "there is room", func() bool { return out.Post([]byte{byte(sent), byte(sent >> 8)}, tr.W) == nil })
		}
	}
	if b, fds, err := in.Next(); err != nil || int(b[0])|int(b[1])<<8 != sent {
		t.Errorf("%v, %v", b, err)
	} else {
		fds.Close()
	}
	tr.ClosedEverywhere()
}

// TestOutboxCloses drops what waits, descriptors and all.
func TestOutboxCloses(t *testing.T) {
	netnstest.CheckFDs(t)
	ends := brokertest.SocketPair(t)
	out, err := NewOutbox(ends[0], 100)
	if err != nil {
		t.Fatal(err)
	}
	tr := brokertest.NewTracer(t)
	for out.Post([]byte{1}, tr.W) == nil {
	}
	out.Close()
	if err := out.Post([]byte{1}); err == nil {
		t.Error("it takes a packet when it is closed")
	}
	ends[1].Close()
	tr.ClosedEverywhere()
}

// TestNoRoomForDescriptors receives a message when the table of descriptors is full:
// the message is there, and no descriptor is left over.
func TestNoRoomForDescriptors(t *testing.T) {
	netnstest.CheckFDs(t)
	ends := brokertest.SocketPair(t)
	defer ends[0].Close()
	defer ends[1].Close()
	in, err := NewInbound(ends[1], 8, 3)
	if err != nil {
		t.Fatal(err)
	}
	tr := brokertest.NewTracer(t)
	if _, _, err := ends[0].WriteMsgUnix([]byte("message"), unix.UnixRights(tr.W, tr.W, tr.W), nil); err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	// Room for one: the first that is free is 0 or some more.
	free, err := Dup(tr.R)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(free) + 1, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	b, fds, err := in.Next()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if string(b) != "message" || !errors.Is(err, ErrNoDescriptors) || len(fds) > 1 {
		t.Errorf("%q, %d descriptors, %v", b, len(fds), err)
	}
	fds.Close()
	tr.ClosedEverywhere()
}
