package mesh

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"exnet/fabric"
	"exnet/fabric/emp"
)

// A session begins with a link and OnRequest only when those of the node's last session, and
// OnUnlinked, have ended: also where the last session ends before the next one comes.
func TestSuccession(t *testing.T) {
	m := open(t, nil, selfOf(1), nil) // it accepts outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		var links, requests, ends atomic.Int32
		answer, unlink := make(chan struct{}), make(chan struct{})
		m.cfg.OnRequest = func(fabric.NodeID, []byte) []byte {
			requests.Add(1)
			<-answer
			return []byte("1")
		}
		m.cfg.OnUnlinked = func(fabric.NodeID) {
			ends.Add(1)
			<-unlink
		}
		m.mu.Lock()
		m.linker = func(_ []net.Conn, n fabric.NodeID) (emp.Link, error) {
			links.Add(1)
			return &fakeLink{peer: n, done: make(chan struct{})}, nil
		}
		m.mu.Unlock()
		var work sync.WaitGroup
		peer := selfOf(2)
		begin := func() *session {
			near, far := net.Pipe()
			s := m.newSession(near, hello{Self: peer}, nil, m.Addr())
			if err := m.registerSession(s); err != nil {
				t.Fatal(err)
			}
			s.parts.come <- part{nil, 0, 1}
			work.Go(func() { s.run(context.Background()) })
			work.Go(func() { _, _ = io.Copy(io.Discard, far) })
			if err := sendMessage(far, news{Request: &parcel{ID: 1, Text: []byte("1")}}); err != nil {
				t.Fatal(err)
			}
			return s
		}
		expect := func(when string, l, r, e int32) {
			t.Helper()
			synctest.Wait()
			if links.Load() != l || requests.Load() != r || ends.Load() != e {
				t.Fatalf("%s: %d links, %d requests, %d ends; want %d, %d, %d", when, links.Load(), requests.Load(), ends.Load(), l, r, e)
			}
		}
		begin()
		expect("first", 1, 1, 0)
		next := begin()
		expect("second, the first one's request runs", 1, 1, 0)
		answer <- struct{}{}
		expect("second, the first one's end is told", 1, 1, 1)
		unlink <- struct{}{}
		expect("second", 2, 2, 1)
		answer <- struct{}{}
		next.end(errors.New("cut"))
		expect("cut", 2, 2, 2)
		last := begin()
		expect("third, the second one's end is told", 2, 2, 2)
		close(answer)
		close(unlink)
		expect("third", 3, 3, 2)
		last.end(errors.New("cut"))
		work.Wait()
	})
}
