package control

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"exnet/directsockets/broker"
)

// What is held is let go when the Hold is closed, when its process has gone, which the kernel
// tells by closing its connection, and when the Teller ends. The clients' tables are written anew
// each time.
func TestHold(t *testing.T) {
	for name, end := range map[string]func(*Hold, *Teller) error{
		"closed": func(h *Hold, _ *Teller) error { return h.Close() },
		"killed": func(h *Hold, _ *Teller) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, conn := range h.held {
				return conn.Close()
			}
			return net.ErrClosed
		},
		"teller": func(_ *Hold, t *Teller) error { return t.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "1"+directSuffix)
			var sw broker.Switch
			switched := make(chan int, 4)
			teller, err := newTeller(path, answerDirect(&sw, func() broker.Returned {
				_, held := sw.Rules()
				switched <- len(held)
				return broker.Returned{Back: 3}
			}, nil))
			if err != nil {
				t.Fatal(err)
			}
			h := NewHold(broker.Rule{Port: 80})
			defer func() {
				h.Close()
				if name != "teller" {
					teller.Close()
				}
			}()
			ask := func() (*Switched, error) {
				return h.askBroker(path, "it", func() (net.Conn, Reply, error) {
					return callBroker(path, &Request{Op: OpHold, Direct: &h.rule}, time.Minute)
				})
			}
			s, err := ask()
			if err != nil || s.Back != 3 || len(s.Held) != 1 || s.Held[0].Port != 80 || <-switched != 1 {
				t.Fatalf("%+v, %v", s, err)
			}
			if s, err := ask(); s != nil || err != nil {
				t.Errorf("asked twice: %+v, %v", s, err)
			}
			if r, err := askBroker(path, &Request{Op: OpDirect}, time.Minute); err != nil || len(r.Direct.Held) != 1 {
				t.Errorf("meanwhile it answers %+v, %v", r, err)
			}
			if err := end(h, teller); err != nil {
				t.Fatal(err)
			}
			if n := <-switched; n != 0 {
				t.Errorf("%d are held", n)
			}
		})
	}
}
