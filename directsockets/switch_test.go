package directsockets_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/broker"
	"exnet/test/testlab"
)

// TestSwitch switches two connections off and on again while numbered bytes go both ways: none is
// lost or comes twice, and each time the connections are direct again. One has a small queue, so
// that PAUSE waits for room.
func TestSwitch(t *testing.T) {
	var sw broker.Switch
	s := testlab.StartBrokerSwitch(t, &sw)
	client := dialBroker(t, s.Path())
	for name, cfg := range map[string]directsockets.Config{"usual": {}, "small": {Slots: 16, Ring: 64 << 10}} {
		t.Run(name, func(t *testing.T) {
			cfg.Broker, cfg.Eager = client, true
			a, b := pair(t, cfg, cfg)
			makeDirect(t, a, b)
			stop := make(chan struct{})
			ways := []*way{{from: a, to: b}, {from: b, to: a}}
			for _, w := range ways {
				go w.send(stop)
				go w.receive()
			}
			began := time.Now()
			for range 20 {
				for _, direct := range []bool{false, true} {
					sw.Add(broker.Rule{Direct: direct})
					s.Switched()
					eventually(t, "both ends are direct, or none", func() bool {
						return a.Stats().Direct() == direct && b.Stats().Direct() == direct
					})
					for _, w := range ways { // some bytes go that way
						at := w.got.Load()
						eventually(t, "bytes come", func() bool { return w.got.Load() > at+10000 || w.failed.Load() != nil })
					}
				}
			}
			for _, c := range s.Connections() {
				if open := a.LocalAddr().String(); c.Local.String() == open || c.Remote.String() == open {
					if c.Returns != 20 || c.DirectSince.Before(began) || c.RingSize == 0 || c.RingSize > 1<<30 {
						t.Errorf("it went back %d times, 20 are true; direct since %v, began at %v; a ring of %d", c.Returns, c.DirectSince, began, c.RingSize)
					}
				}
			}
			close(stop)
			for i, w := range ways {
				eventually(t, "the end comes", func() bool { return w.failed.Load() != nil })
				if err := *w.failed.Load(); err != io.EOF || w.got.Load() != w.sent.Load() {
					t.Errorf("way %d: %v, %d bytes of %d", i, err, w.got.Load(), w.sent.Load())
				}
			}
		})
	}
}

// way is one direction of a connection, whose bytes tell their place.
type way struct {
	from, to  *directsockets.Conn
	sent, got atomic.Int64
	failed    atomic.Pointer[error] // why receive has ended
}

func byteAt(i int64) byte { return byte(i*167 + i>>8*13 + i>>16) }

// send sends until stop, then ends the direction.
func (w *way) send(stop chan struct{}) {
	buf := make([]byte, 100000)
	for {
		select {
		case <-stop:
			_ = w.from.CloseWrite() // the receiver finds out
			return
		default:
		}
		n := 1 + rand.IntN(2000)
		if rand.IntN(8) == 0 {
			n = 1 + rand.IntN(len(buf))
		}
		at := w.sent.Load()
		for i := range n {
			buf[i] = byteAt(at + int64(i))
		}
		k, err := w.from.Write(buf[:n])
		w.sent.Add(int64(k))
		if err != nil {
			return
		}
	}
}

// receive receives until the end, or another byte than was sent.
func (w *way) receive() {
	buf := make([]byte, 100000)
	for {
		n, err := w.to.Read(buf[:1+rand.IntN(len(buf))])
		at := w.got.Load()
		for i := range n {
			if buf[i] != byteAt(at+int64(i)) && err == nil {
				err = errors.New("another byte")
			}
		}
		w.got.Add(int64(n))
		if err != nil {
			w.failed.Store(&err)
			return
		}
	}
}
