package udp

import (
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/datagram"
)

// changing changes a socket's options once, just after they have been read.
type changing struct {
	syscall.RawConn
	once   sync.Once
	change func()
}

func (c *changing) Control(f func(fd uintptr)) error {
	err := c.RawConn.Control(f)
	c.once.Do(c.change)
	return err
}

// TestChangedWhileRead has the program change an option while another goroutine reads all of
// them: what that one has read is not kept.
func TestChangedWhileRead(t *testing.T) {
	s, _ := receiver(t)
	raw := s.cfg.Raw
	s.cfg.Raw = &changing{RawConn: raw, change: func() {
		var err error
		set := func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }
		if e := raw.Control(set); e != nil || err != nil {
			t.Fatal(e, err)
		}
		s.Changed()
	}}
	s.currentOptions()
	if !s.currentOptions().shareable {
		t.Error("the options are those of before the change")
	}
}

// TestChangedToPlain has the program set an option that only the kernel serves, while a flow
// leads to its socket: it receives what is in memory, and then what the kernel gives.
func TestChangedToPlain(t *testing.T) {
	for name, option := range map[string]struct{ level, name int }{
		"timestamps": {unix.SOL_SOCKET, unix.SO_TIMESTAMP_NEW},
		"trains":     {unix.IPPROTO_UDP, unix.UDP_GRO},
		"TTLs":       {unix.IPPROTO_IP, unix.IP_RECVTTL},
	} {
		t.Run(name, func(t *testing.T) {
			s, tx := receiverOfOne(t)
			s.Changed()
			if s.Left() {
				t.Fatal("it has left, and nothing has changed")
			}
			if err := unix.SetsockoptInt(s.fd, option.level, option.name, 1); err != nil {
				t.Fatal(err)
			}
			s.Changed()
			if out := tx.Send([]byte("y"), datagram.Meta{}); out != datagram.Gone {
				t.Errorf("%v: another datagram goes through memory", out)
			}
			if d, ok := s.Receive(make([]byte, 10)); !ok || d.N != 1 || !s.Plain() {
				t.Error("what was in memory is lost, or more may come from there", ok, d)
			}
		})
	}
}
