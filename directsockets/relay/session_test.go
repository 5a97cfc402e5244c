package relay

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"exnet/directsockets/segment"
	"exnet/fabric"
	"exnet/fabric/nic"
)

// forgets has an Engine forget a node although the link is up.
func (h *host) forgets(t *testing.T, id fabric.NodeID) {
	t.Helper()
	done := make(chan struct{})
	if err := h.engine.doLater(func() {
		h.engine.loseSession(h.engine.nodeOf(id))
		close(done)
	}); err != nil {
		t.Fatal(err)
	}
	<-done
}

// joins makes a new connection. A node that has not heard yet that the other one has forgotten it
// resets what is offered meanwhile: then it is offered again.
func joins(t *testing.T, hosts []*host) (client, server *segment.End) {
	t.Helper()
	until(t, "a new connection", func() bool {
		client = hosts[0].call(t, hosts[1], segment.Config{})
		gone := func() bool { client.Awake(); return client.Err() != nil }
		until(t, "an offer, or its end", func() bool { return len(hosts[1].offers) > 0 || gone() })
		if len(hosts[1].offers) == 0 {
			return false
		}
		server = hosts[1].answer(t)
		until(t, "attached, or its end", func() bool { return client.Attached() || gone() })
		return client.Err() == nil
	})
	return client, server
}

// works has a new connection carry bytes.
func works(t *testing.T, hosts []*host) {
	t.Helper()
	client, server := joins(t, hosts)
	carries(t, client, server)
}

// When one node forgets another one, the connections go on, also one of which nobody sends; both
// may forget at a time, and repeatedly.
func TestForgotten(t *testing.T) {
	for who, name := range []string{"client's", "server's", "both"} {
		t.Run(name, func(t *testing.T) {
			hosts, client, server := pair(t, segment.Config{}, nil)
			for range 20 {
				for i, h := range hosts {
					if who == i || who == 2 {
						h.forgets(t, fabric.NodeID(2-i))
					}
				}
				goesOn(t, client, server)
				works(t, hosts)
			}
			for _, h := range hosts {
				if s := h.engine.Stats(); s.Lost != 0 || s.Breaches != 0 {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

// goesOn has a connection carry bytes both ways.
func goesOn(t *testing.T, client, server *segment.End) {
	t.Helper()
	for i, ends := range [][2]*segment.End{{client, server}, {server, client}} {
		for _, n := range []int{30, 70_000} { // by VELO, and by RMA
			data := pattern(uint64(i+n), n)
			if err := send(t, ends[0], data, true); err != nil {
				t.Fatal(err)
			}
			if got, err := receive(t, ends[1], n, true); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes of %d, or others: %v", len(got), n, err)
			}
		}
	}
}

// A link that is reported as lost when there is another one takes nothing with it.
func TestLateLoss(t *testing.T) {
	hosts, client, server := pair(t, segment.Config{}, nil)
	hosts[0].engine.PeerDown(2)
	if err := send(t, client, []byte("still there"), true); err != nil {
		t.Fatal(err)
	}
	if got, err := receive(t, server, 11, true); err != nil || string(got) != "still there" {
		t.Error(string(got), err)
	}
}

// A connection that one node does not have any more is reset at the other one when that sends.
func TestUnknownSelected(t *testing.T) {
	hosts, client, server := pair(t, segment.Config{}, nil)
	done := make(chan struct{})
	if err := hosts[1].engine.doLater(func() {
		for _, c := range hosts[1].engine.conns {
			hosts[1].engine.on(c, onBroken)
		}
		close(done)
	}); err != nil {
		t.Fatal(err)
	}
	<-done
	_ = end(t, server, true)
	works(t, hosts) // another one is selected now
	if _, err := client.Send([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := end(t, client, true); !errors.Is(err, segment.ErrReset) {
		t.Error(err)
	}
}

// HELLO for a session that is over is answered by HELLO; what comes after it, or in a mailbox
// without it, is thrown away. A new session ends the one before.
func TestStale(t *testing.T) {
	h, _, x := victim(t)
	id, _, server := x.open(h)
	x.say(kindStage, tagHello, hello{newest, 1, 99, 1}.append(nil))
	if got, err := parseHello(x.hear(kindStage)); err != nil || got != (hello{uint32(Versions.Oldest), x.far, 1, h.engine.born}) {
		t.Errorf("%+v, %v", got, err)
	}
	x.selects(id)
	x.tell(kind(segment.TagPromote), promote)
	x.tell(kind(segment.TagVELOLast), []byte("it goes on"))
	until(t, "promoted", func() bool { _, ok := server.PromotedAt(); return ok })
	if got, err := receive(t, server, 10, true); err != nil || !bytes.Equal(got, []byte("it goes on")) {
		t.Errorf("%q, %v", got, err)
	}
	x.say(kindStage, tagHello, hello{newest, 2, 0, 1}.append(nil)) // it begins anew, and has no connection
	for h := (hello{}); h.far != 2; {
		h, _ = parseHello(x.hear(kindStage))
	}
	stale := h.engine.Stats().Stale
	x.say(kindOpen, 0, []byte{1}) // nobody looks at it: HELLO was not for the session here
	until(t, "stale", func() bool { return h.engine.Stats().Stale == stale+1 })
	x.say(kindStage, tagHello, hello{newest, 1, 0, 1}.append(nil)) // it was late
	until(t, "stale", func() bool { return h.engine.Stats().Stale == stale+2 })
	if s := h.engine.Stats(); s.Breaches != 0 {
		t.Errorf("%+v", s)
	}
	x.begins(3)
	r, err := parseResume(x.hear(kindStage))
	if err != nil || r.id != 1000 || r.messages != 2 || r.got != 2 {
		t.Errorf("RESUME %+v, %v", r, err)
	}
	x.say(kindDrop, tagGone, appendID(nil, r.from))
	until(t, "reset", func() bool { server.Awake(); return server.Err() == segment.ErrReset })
	_, _, server = x.open(h)
	x.say(kindStage, tagHello, hello{newest + 1, 3, 0, 1}.append(nil))
	until(t, "reset", func() bool { server.Awake(); return server.Err() == segment.ErrReset })
}

// A server's program that has attached sends nothing in the segment before the client's host has
// said that the client has, too. So whatever becomes of the offer, also when that program closes at
// once, all its bytes are on the shadow.
func TestAttachedAsSessionEnds(t *testing.T) {
	hosts := newHosts(t, 2, nil)
	client := hosts[0].call(t, hosts[1], segment.Config{})
	o := <-hosts[1].offers
	hosts[1].offers <- o
	e, done := hosts[1].engine, make(chan struct{})
	var server *segment.End
	if err := e.doLater(func() { // the node looks at nothing meanwhile
		defer close(done)
		server = hosts[1].answer(t)
		if err := server.Promote(0); !errors.Is(err, segment.ErrAgain) {
			t.Errorf("it may send before the client has attached: %v", err)
		}
		e.loseSession(e.nodeOf(1))
		e.forgetLost()
	}); err != nil {
		t.Fatal(err)
	}
	<-done
	if server.Awake(); server.Lost() || server.Err() != segment.ErrClosed {
		t.Errorf("it is told %v", server.Err())
	}
	until(t, "refused", func() bool { client.Awake(); return client.Err() != nil && !client.Attached() })
	works(t, hosts)
}

// A server's program that sends all the same, as one of an older library does, is told that what it
// has sent is lost.
func TestSendsBeforeItMay(t *testing.T) {
	hosts := newHosts(t, 2, nil)
	hosts[0].call(t, hosts[1], segment.Config{})
	o := <-hosts[1].offers
	hosts[1].offers <- o
	e, done := hosts[1].engine, make(chan struct{})
	var server *segment.End
	if err := e.doLater(func() {
		defer close(done)
		server = hosts[1].answer(t)
		const state, attached = 512 + 136, 2 // SPEC 2.2: of side 0
		server.Segment().Exposed()[state] = attached
		if err := server.Promote(0); err != nil {
			t.Error(err)
		}
		e.loseSession(e.nodeOf(1))
		e.forgetLost()
	}); err != nil {
		t.Fatal(err)
	}
	<-done
	if server.Awake(); !server.Lost() {
		t.Errorf("it is told %v", server.Err())
	}
}

// A client that has attached when the session ends, before the server's node has heard so: the
// server may send when RESUME has come. If there is no connection any more, it depends on who says
// so. The Engine that offered it: its client has not attached, and all goes on by TCP. Another
// Engine: the client may have sent, and ended, and what it sent is lost.
func TestUnheardAsSessionEnds(t *testing.T) {
	for name, c := range map[string]struct {
		born   uint64
		resume bool
		ends   error
	}{"resumes": {1, true, nil}, "has none": {1, false, segment.ErrClosed}, "another Engine": {2, false, segment.ErrReset}} {
		t.Run(name, func(t *testing.T) {
			h, _, x := victim(t)
			id, _, server := x.offer(h)
			x.born = c.born
			x.begins(2)
			if c.born == 1 {
				r, err := parseResume(x.hear(kindStage))
				if err != nil || r.id != 1000 {
					t.Fatalf("RESUME %+v, %v", r, err)
				}
				if server.Attached() {
					t.Error("it may send")
				}
			}
			if c.resume {
				x.say(kindStage, tagResume, resume{id: id, key: x.key, from: 1000, number: 1}.append(nil))
				until(t, "both attached", server.Attached)
			} else if c.born == 1 {
				x.say(kindDrop, tagGone, appendID(nil, id))
			}
			if c.ends != nil {
				until(t, "the end", func() bool { server.Awake(); return server.Err() != nil })
			}
			if err := server.Err(); err != c.ends {
				t.Errorf("it is told %v, want %v", err, c.ends)
			}
		})
	}
}

// A node begins anew on a host whose clock was set back, and is heard before the end of the link of
// its predecessor: both have a session once that is known.
func TestClockSetBack(t *testing.T) {
	hosts, _, _ := cutHosts(t, nil)
	old, e := hosts[0], hosts[1].engine
	if err := old.engine.doLater(func() { old.engine.session = uint64(time.Now().Add(time.Hour).UnixNano()) }); err != nil {
		t.Fatal(err)
	}
	client, server := joined(t, hosts, segment.Config{})
	for _, end := range []*segment.End{client, server} { // what waits for the link would answer
		_ = end.Close(false)
	}
	for _, h := range hosts {
		until(t, "forgotten", func() bool { return h.count() == 0 })
	}
	if err := old.fabric.Detach(old.nic); err != nil {
		t.Fatal(err)
	}
	card, err := nic.New(nic.Config{Node: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := old.fabric.Attach(card); err != nil {
		t.Fatal(err)
	}
	anew := newHost(t, card, nil)
	stale := e.Stats().Stale
	client = anew.call(t, hosts[1], segment.Config{})
	until(t, "heard", func() bool { return e.Stats().Stale > stale })
	e.PeerDown(1)
	e.PeerUp(1)
	_ = hosts[1].answer(t)
	until(t, "attached", client.Attached)
}
