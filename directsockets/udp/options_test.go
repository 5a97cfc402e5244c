package udp

import (
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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

// TestChangedWhileRead has the program change an option while another goroutine reads all of them:
// what that one has read is not kept.
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
	s.look()
	if !s.look().shareable {
		t.Error("the options are those of before the change")
	}
}
