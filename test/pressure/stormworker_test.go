package pressure

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
)

// stormLen is the payload of a frame of 64 bytes: after the headers of Ethernet, IPv4 and
// UDP (the check sequence is no part of a TUN's frames).
const stormLen = 64 - 14 - 20 - 8

// storm sends as many UDP packets as it can until it is told to end.
func (w *worker) storm() error {
	c, err := net.Dial("udp4", w.addr)
	if err != nil {
		return err
	}
	var ending atomic.Bool
	go func() {
		w.told()
		ending.Store(true)
	}()
	say("storming")
	var sent, refused int
	for b := make([]byte, stormLen); !ending.Load(); {
		_, err := c.Write(b)
		switch {
		case err == nil:
			sent++
		case errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ECONNREFUSED):
			refused++
		default:
			return err
		}
	}
	say("sent %d", sent)
	say("refused %d", refused)
	w.told()
	return c.Close()
}

// count counts the UDP packets that arrive.
func (w *worker) count() error {
	c, err := net.ListenPacket("udp4", w.addr)
	if err != nil {
		return err
	}
	var got atomic.Int64
	go func() {
		for b := make([]byte, 2048); ; {
			n, _, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if n == stormLen {
				got.Add(1)
			}
		}
	}()
	say("listening")
	for w.told() == "count" {
		say("got %d", got.Load())
	}
	return c.Close()
}
