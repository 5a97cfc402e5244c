package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"exnet/directsockets/segment"
)

// partners lets hosts speak the newest version.
func partners(hosts []*host) {
	for i, h := range hosts {
		h.engine.Speak(hosts[1-i].nic.ID(), Versions.Newest)
	}
}

// backToTCP is what a program that goes back to TCP writes there.
func backToTCP(t *testing.T, e *segment.End) (wrote []byte) {
	t.Helper()
	until(t, "fallen back", e.PeerFallenBack)
	if err := e.ReturnToTCP(func(p []byte) (int, error) { wrote = append(wrote, p...); return len(p), nil }); err != nil {
		t.Fatal(err)
	}
	return wrote
}

// pausedPair returns two nodes and the ends of a connection whose client has sent "before", and has
// paused. read has the server read both.
func pausedPair(t *testing.T) (hosts []*host, client, server *segment.End, read func()) {
	t.Helper()
	hosts = newHosts(t, 2, nil)
	partners(hosts)
	client, server = joined(t, hosts, segment.Config{})
	if err := send(t, client, []byte("before"), true); err != nil {
		t.Fatal(err)
	}
	if err := client.Pause(); err != nil {
		t.Fatal(err)
	}
	return hosts, client, server, func() {
		t.Helper()
		if got, err := receive(t, server, 6, true); err != nil || string(got) != "before" {
			t.Errorf("%q, %v", got, err)
		}
		if err := end(t, server, true); err != segment.ErrPaused {
			t.Errorf("after it: %v", err)
		}
	}
}

// A node that is about to end waits for no idle program whose PAUSE was consumed, and whose peer
// has fallen back: neither gets a reset.
func TestGoBackResumed(t *testing.T) {
	for ends, name := range []string{"client's node", "server's node"} {
		for _, resumed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, resumed %v", name, resumed), func(t *testing.T) {
				hosts, client, server, read := pausedPair(t)
				read()
				if resumed {
					until(t, "resumed", func() bool { return client.Resumed() == nil })
				}
				if err := server.FallBack(); err != nil {
					t.Fatal(err)
				}
				until(t, "fallen back", client.PeerFallenBack)
				ctx, cancel := context.WithTimeout(t.Context(), hang)
				defer cancel()
				hosts[ends].engine.GoBack(ctx)
				if ctx.Err() != nil {
					t.Fatal("it waits for ever")
				}
				hosts[ends].stop()
				for i, e := range []*segment.End{client, server} {
					until(t, "gone", func() bool { e.Awake(); return e.Err() != nil })
					if !errors.Is(e.Err(), segment.ErrClosed) {
						t.Errorf("end %d: %v", i, e.Err())
					}
				}
			})
		}
	}
}

// When a node is about to end, both programs of a connection go back to TCP, whichever node it is:
// what they have sent in the segment is there, what they send after that they write to the shadow,
// and neither gets a reset.
func TestGoBack(t *testing.T) {
	for ends, name := range []string{"client's node", "server's node"} {
		t.Run(name, func(t *testing.T) {
			hosts, client, server := pair(t, segment.Config{}, nil)
			partners(hosts)
			if err := send(t, client, []byte("before"), true); err != nil {
				t.Fatal(err)
			}
			big := pattern(9, 100_000)
			if err := send(t, server, big, true); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), hang)
			defer cancel()
			hosts[ends].engine.GoBack(ctx)
			if ctx.Err() != nil {
				t.Fatal("it waits for ever")
			}
			hosts[ends].stop()
			for _, e := range []*segment.End{client, server} {
				if wrote := backToTCP(t, e); len(wrote) > 0 {
					t.Errorf("%d bytes that have come come again", len(wrote))
				}
			}
			if got, err := receive(t, server, 6, true); err != nil || string(got) != "before" {
				t.Errorf("%q, %v", got, err)
			}
			if got, err := receive(t, client, len(big), true); err != nil || !bytes.Equal(got, big) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			for _, e := range []*segment.End{client, server} {
				if err := end(t, e, true); err != segment.ErrClosed {
					t.Errorf("after its messages a program finds %v", err)
				}
			}
		})
	}
}

// A program that had fallen back before gets from the shadow what comes after the byte where it
// stopped: its position counts, also if the far program is idle until both nodes have gone.
func TestGoBackAfterFallBack(t *testing.T) {
	hosts, client, server := pair(t, segment.Config{}, nil)
	partners(hosts)
	data := pattern(3, 600)
	if err := send(t, client, data, true); err != nil {
		t.Fatal(err)
	}
	if _, err := receive(t, server, 50, true); err != nil { // in the middle of a message
		t.Fatal(err)
	}
	if err := server.FallBack(); err != nil {
		t.Fatal(err)
	}
	until(t, "fallen back", client.PeerFallenBack)
	hosts[0].engine.GoBack(t.Context())
	hosts[0].stop()
	until(t, "returned", server.PeerReturned)
	if wrote := backToTCP(t, client); !bytes.Equal(wrote, data[50:]) {
		t.Errorf("%d bytes go to the shadow, or others", len(wrote))
	}
	if from, to, err := server.Left(); err != nil || from != 17 || to != 17+550 {
		t.Errorf("the shadow gives what comes after byte %d up to %d, %v", from, to, err)
	}
}

// What a program has sent that was killed before it found that it goes back to TCP is delivered.
func TestGoBackKilled(t *testing.T) {
	hosts, client, server := pair(t, segment.Config{}, nil)
	partners(hosts)
	var c *conn
	found := make(chan struct{})
	if err := hosts[0].engine.doLater(func() {
		for _, c = range hosts[0].engine.conns {
		}
		close(found)
	}); err != nil {
		t.Fatal(err)
	}
	<-found
	goOn := hosts[0].pause(t)
	defer goOn()
	if _, done := c.relay.Part(); !done {
		t.Fatal("something is on its way")
	}
	const attention, fallenBack = 1024 + 128, 4          // SPEC 2.2: of side 1
	client.Segment().Exposed()[attention] &^= fallenBack // it has looked before that
	if n, err := client.Send([]byte("x")); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	client.Segment().Exposed()[attention] |= fallenBack
	die(t, client)
	goOn()
	if got, err := receive(t, server, 1, true); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	if err := end(t, server, true); err != segment.ErrClosed {
		t.Errorf("then %v", err)
	}
}

// A server that has attached while its client's node ended, after that has had its connections go
// back to TCP, is on TCP with its client, and gets no reset. Of a node that ends otherwise nobody
// knows what the client has sent.
func TestGoBackUnheard(t *testing.T) {
	for over, want := range []error{0: segment.ErrReset, overLeft: segment.ErrClosed} {
		hosts := newHosts(t, 2, alone)
		hosts[0].call(t, hosts[1], segment.Config{})
		o := <-hosts[1].offers
		defer hosts[0].pause(t)() // it does not hear of it
		hosts[1].offers <- o
		server := hosts[1].answer(t)
		e := hosts[1].engine
		until(t, "attached", func() bool {
			list, err := e.Connections()
			return err == nil && len(list) == 1 && list[0].State == "attached"
		})
		if err := e.doLater(func() {
			for _, c := range e.conns {
				_ = e.takeStaged(e.channelOf(c.node, c.device), tagOver, []byte{byte(over)})
			}
		}); err != nil {
			t.Fatal(err)
		}
		until(t, "gone", func() bool { server.Awake(); return server.Err() != nil })
		if err := server.Err(); err != want {
			t.Errorf("OVER %d: the program finds %v, want %v", over, err, want)
		}
	}
}

// A node that ends while its link is away waits for it a little, and resets what is left.
func TestGoBackCut(t *testing.T) {
	hosts, cut, _ := cutHosts(t, nil)
	client, _ := joined(t, hosts, segment.Config{})
	partners(hosts)
	cut()
	hosts[0].engine.GoBack(t.Context())
	until(t, "gone", func() bool { client.Awake(); return client.Err() != nil })
	if err := client.Err(); err != segment.ErrReset || client.Late() {
		t.Errorf("the program finds %v", err)
	}
}

// A direction that has paused goes back to TCP for good, whether PAUSE was consumed or not: what
// was sent before it comes, and neither program gets a reset.
func TestGoBackPaused(t *testing.T) {
	for _, consumed := range []bool{true, false} {
		hosts, client, server, read := pausedPair(t)
		if consumed {
			read()
		}
		hosts[0].engine.GoBack(t.Context())
		hosts[0].stop()
		if !consumed {
			read()
		}
		if err := client.Resumed(); err != segment.ErrClosed {
			t.Errorf("the client finds %v", err)
		}
		if wrote := backToTCP(t, client); len(wrote) > 0 {
			t.Errorf("%d bytes that have come come again", len(wrote))
		}
		until(t, "the node has gone", func() bool { return server.Err() == segment.ErrClosed && client.Err() == segment.ErrClosed })
		if _, ok := server.PromotedAt(); ok {
			t.Error("promoted")
		}
	}
}

// The link is away for a moment just as a node ends: no program is reset, also where the far node
// has had BYE, and has the connection no more.
func TestGoBackCutOff(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 20
	}
	seen := make(map[string]int)
	for range rounds {
		hosts, cut, back := cutHosts(t, nil)
		client, server := joined(t, hosts, segment.Config{})
		partners(hosts)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		var done sync.WaitGroup
		done.Go(func() { hosts[0].engine.GoBack(ctx) })
		for _, e := range []*segment.End{client, server} {
			done.Go(func() {
				for !e.PeerFallenBack() && e.Err() == nil {
					time.Sleep(20 * time.Microsecond)
				}
				_ = e.ReturnToTCP(func(p []byte) (int, error) { return len(p), nil }) // nothing was sent
			})
		}
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Microsecond)
		cut()
		seen[lifeOf(t, hosts[0])+", "+lifeOf(t, hosts[1])]++
		time.Sleep(time.Millisecond)
		back()
		done.Wait()
		cancel()
		for i, e := range []*segment.End{client, server} {
			until(t, "the node has closed", func() bool { e.Awake(); return e.Err() != nil })
			if err := e.Err(); !errors.Is(err, segment.ErrClosed) {
				t.Errorf("program %d: %v", i, err)
			}
		}
		hosts[0].stop()
		hosts[1].stop()
	}
	t.Log(seen)
}

// lifeOf is the state of the connection that a host has.
func lifeOf(t *testing.T, h *host) string {
	t.Helper()
	list, err := h.engine.Connections()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		return c.State
	}
	return "over"
}
