package relay

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"exnet/directsockets/segment"
	"exnet/fabric/atu"
	"exnet/fabric/rma"
)

// What has gathered goes in batches, whatever the sizes, and comes as it was sent.
func TestBatches(t *testing.T) {
	for _, size := range []int{1, 64, 120, 300, 1000, 8192, 20_000} {
		hosts, client, server := pair(t, segment.Config{Slots: 1024}, nil)
		data := pattern(uint64(size), 100*size)
		var wg sync.WaitGroup
		wg.Go(func() {
			for rest := data; len(rest) > 0; rest = rest[size:] {
				if err := send(t, client, rest[:size], true); err != nil {
					t.Error(err)
					return
				}
			}
		})
		got, err := receive(t, server, len(data), true)
		wg.Wait()
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes at a time: %v, equal %v", size, err, bytes.Equal(got, data))
		}
		a, b := hosts[0].engine.Stats(), hosts[1].engine.Stats()
		if a.Batches != b.BatchesReceived || a.BytesSent != uint64(len(data)) || b.BytesReceived != a.BytesSent || a.MessagesSent != b.MessagesReceived {
			t.Errorf("%d bytes at a time: %+v\n%+v", size, a, b)
		}
	}
}

// alone has the Engine's own goroutine do all its polling, so that pause stops no other host: on a
// fabric in memory, a host polls for the one that it sends to.
func alone(c *Config) { c.NAPI.InlineBudget = -1 }

// pause has an Engine, which polls alone, do nothing until the function that it returns is called.
func (h *host) pause(t *testing.T) (goOn func()) {
	t.Helper()
	held, release := make(chan struct{}), make(chan struct{})
	if err := h.engine.doLater(func() { close(held); <-release }); err != nil {
		t.Fatal(err)
	}
	<-held
	return sync.OnceFunc(func() { close(release) })
}

// A place is looked for without garbage, also where there is none: each message looks for one.
func TestRoomWithoutGarbage(t *testing.T) {
	ch := &channel{}
	for range places {
		p := ch.placeFor(0, placeLen)
		if p == nil {
			t.Fatal("no place")
		}
		p.buf = p.buf[:placeLen] // it is full
	}
	if n := testing.AllocsPerRun(100, func() {
		if ch.placeFor(0, placeLen) != nil {
			t.Fatal("a place too many")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What a program sends while its node looks elsewhere is one batch.
func TestOneBatch(t *testing.T) {
	hosts, client, server := pair(t, segment.Config{Slots: 1024}, alone)
	goOn := hosts[0].pause(t)
	defer goOn()
	var want []byte
	for i := range 200 {
		p := pattern(uint64(i), 1+i*2)
		want = append(want, p...)
		if n, err := client.Send(p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	goOn()
	got, err := receive(t, server, len(want), true)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v, equal %v", err, bytes.Equal(got, want))
	}
	if s := hosts[0].engine.Stats(); s.Batches != 1 || s.Puts != 0 {
		t.Errorf("%+v", s)
	}
}

// Large messages that gather in the ring come by few PUTs, in order, small ones between them.
func TestJoined(t *testing.T) {
	const n, size, gathered = 14, 64 << 10, 10
	hosts, client, server := pair(t, segment.Config{Slots: 1024, Ring: n * size}, alone)
	var want []byte
	for i := range 2 { // the first message goes alone: the peer lends places meanwhile
		goOn := func() {}
		if i > 0 {
			goOn = hosts[0].pause(t)
			defer goOn()
		}
		sent := 0
		for j := range 1 + i*gathered {
			p := pattern(uint64(i*100+j), size)
			if j == gathered/2 {
				p = p[:100]
			}
			if k, err := client.Send(p); k != len(p) || err != nil {
				t.Fatal(k, err)
			}
			want, sent = append(want, p...), sent+len(p)
		}
		goOn()
		got, err := receive(t, server, sent, true)
		if err != nil || !bytes.Equal(got, want[len(want)-sent:]) {
			t.Fatalf("%v, equal %v", err, bytes.Equal(got, want[len(want)-sent:]))
		}
	}
	puts := func() uint64 { return hosts[0].engine.Stats().Puts }
	until(t, "PUTs end", func() bool { return puts() >= 2 })
	if n := puts(); n > 1+gathered/2 {
		t.Errorf("%d PUTs", n)
	}
}

// A tap is shown what goes through, at both ends, with TCP's numbers.
func TestTap(t *testing.T) {
	hosts, client, server := pair(t, segment.Config{}, nil)
	var mu sync.Mutex
	var seen [2][]byte
	var next [2]uint32
	ends := [2]bool{}
	for i, h := range hosts {
		next[i] = 18 // pair has carried 17 bytes
		h.engine.SetTap(func(s Shown, data []byte) {
			mu.Lock()
			defer mu.Unlock()
			if s.Sent != (i == 0) || s.From != clientAddr || s.To != serverAddr || s.Node != hosts[1-i].nic.ID() || s.Ack != 18 || s.Seq != next[i] {
				t.Errorf("host %d: %+v, want number %d", i+1, s, next[i])
			}
			next[i] += uint32(len(data))
			seen[i] = append(seen[i], data...)
			ends[i] = ends[i] || s.Fin
		})
	}
	var want []byte
	for _, n := range []int{1, 120, 500, 5000, 100_000, 3} {
		p := pattern(uint64(n), n)
		want = append(want, p...)
		if err := send(t, client, p, true); err != nil {
			t.Fatal(err)
		}
	}
	for errors.Is(client.Shutdown(), segment.ErrAgain) {
		wait(t, client, false, true)
	}
	if _, err := receive(t, server, len(want), true); err != nil {
		t.Fatal(err)
	}
	until(t, "end", func() bool { mu.Lock(); defer mu.Unlock(); return ends[0] && ends[1] })
	mu.Lock()
	defer mu.Unlock()
	if !bytes.Equal(seen[0], want) || !bytes.Equal(seen[1], want) {
		t.Errorf("%d and %d bytes shown of %d, or others", len(seen[0]), len(seen[1]), len(want))
	}
}

// put writes to the victim's places, which x.open has reported.
func (x *foe) put(off int, p []byte) {
	x.t.Helper()
	x.write(x.lent+atu.NLA(off), p)
}

// write writes to memory that the victim has lent.
func (x *foe) write(to atu.NLA, p []byte) {
	x.t.Helper()
	region, err := x.nic.ATU().Register(x.vpid, bytes.Clone(p), atu.Read)
	if err != nil {
		x.t.Fatal(err)
	}
	defer region.Close()
	if err := x.rma.Put(rma.PutReq{Local: region.NLA(), Remote: to, Len: len(p), Node: x.to, VPID: x.vpid,
		Notify: rma.NotifyRequester | rma.NotifyCompleter}); err != nil {
		x.t.Fatal(err)
	}
}

// Batches that cannot be cost their sender what they are of, and nobody else anything.
func TestHostileBatches(t *testing.T) {
	message := func(k kind, tag uint8, p []byte) []byte {
		b := make([]byte, headLen, headLen+len(p))
		putHead(b, k, tag, len(p))
		return append(b, p...)
	}
	good := message(kindDrop, 0, appendID(nil, 1))
	is := func(p []byte) batch { return batch{n: uint32(len(p)), sum: checksum(p)} }
	cut, inner, none, beyond := good[:3], message(kindStage, tagBatch, batch{n: 1}.append(nil)), message(0, 0, []byte{1}), message(99, 0, []byte{1})
	for _, c := range []struct {
		what  string
		bytes []byte
		say   batch
	}{
		{"cut in a head", cut, is(cut)},
		{"cut in a payload", good[:7], is(good[:7])},
		{"a batch in a batch", inner, is(inner)},
		{"no kind", none, is(none)},
		{"a kind beyond all", beyond, is(beyond)},
		{"a place beyond all", good, batch{place: places, n: 8, sum: checksum(good)}},
		{"nothing", good, batch{sum: checksum(nil)}},
		{"beyond the place", good, batch{n: placeLen + 1, sum: checksum(good)}},
		{"less than the PUT", good, batch{n: 7, sum: checksum(good[:7])}},
		{"another checksum", good, batch{n: 8, sum: checksum(good) + 1}},
		{"another number", good, batch{n: 8, sum: checksum(good), number: 1}},
	} {
		t.Run(c.what, func(t *testing.T) {
			h, friend, x := victim(t)
			client := friend.call(t, h, segment.Config{})
			server := h.answer(t)
			until(t, "attached", client.Attached)
			x.open(h)
			x.put(0, c.bytes)
			x.say(kindStage, tagBatch, c.say.append(nil))
			until(t, "breach", func() bool { return h.engine.Stats().Breaches == 1 })
			carries(t, client, server)
		})
	}
	for _, c := range []struct {
		what string
		tag  uint8
		p    []byte
	}{
		{"TAKEN what was not sent", tagTaken, appendID(appendID(nil, 1), 0)},
		{"TAKEN beyond all", tagTaken, appendID(appendID(nil, places), 0)},
		{"TAKEN cut", tagTaken, []byte{1}},
		{"LEND cut", tagLend, []byte{1}},
		{"BATCH cut", tagBatch, []byte{1}},
		{"a tag that is none", 99, []byte{1}},
	} {
		t.Run(c.what, func(t *testing.T) {
			h, friend, x := victim(t)
			client := friend.call(t, h, segment.Config{})
			server := h.answer(t)
			until(t, "attached", client.Attached)
			x.say(kindStage, c.tag, c.p)
			until(t, "breach", func() bool { return h.engine.Stats().Breaches == 1 })
			carries(t, client, server)
		})
	}
}

// What follows a batch waits until that has come, and no message of it is lost.
func TestBatchComesLate(t *testing.T) {
	h, _, x := victim(t)
	id, _, server := x.open(h)
	var b []byte
	add := func(k kind, tag uint8, p []byte) {
		at := len(b)
		b = append(append(b, make([]byte, headLen)...), p...)
		putHead(b[at:], k, tag, len(p))
	}
	add(kindSelect, 0, selection{id, x.key, 0, 1000}.append(nil))
	add(kind(segment.TagPromote), x.stamp(), promote)
	add(kind(segment.TagVELOLast), x.stamp(), []byte("first "))
	data := pattern(3, 900)
	add(kind(segment.TagRMAInfo), x.stamp(), append(info(1, 900, 0, 960), data...))
	x.say(kindStage, tagBatch, batch{2, uint32(len(b)), 0, checksum(b)}.append(nil))
	x.tell(kind(segment.TagVELOLast), []byte("last"))
	until(t, "held", func() bool {
		n := 0
		done := make(chan struct{})
		if err := h.engine.doLater(func() {
			n = len(h.engine.nodes[9].channels[x.vpid-FirstVPID].stage.held)
			close(done)
		}); err != nil {
			t.Fatal(err)
		}
		<-done
		return n == 2
	})
	x.put(2*placeLen, b)
	until(t, "promoted", func() bool { _, ok := server.PromotedAt(); return ok })
	got, err := receive(t, server, 6+900+4, true)
	if want := "first " + string(data) + "last"; err != nil || string(got) != want {
		t.Errorf("%v: %.20q", err, got)
	}
	if p := x.hear(kindStage); !bytes.Equal(p, appendID(appendID(nil, 2), 0)) { // TAKEN
		t.Errorf("%x", p)
	}
}

// What follows a message whose data has not come waits until that has come.
func TestDataComesLate(t *testing.T) {
	h, _, x := victim(t)
	id, nla, server := x.open(h)
	data := pattern(4, 900)
	x.selects(id)
	x.tell(kind(segment.TagPromote), promote)
	x.tell(kind(segment.TagVELOLast), []byte("first "))
	x.tell(kind(segment.TagRMAInfo), late(900, info(1, 900, 64, 960)))
	x.tell(kind(segment.TagVELOLast), []byte("last"))
	until(t, "held", func() bool {
		n, done := 0, make(chan struct{})
		if err := h.engine.doLater(func() {
			n = len(h.engine.conns[id].held)
			close(done)
		}); err != nil {
			t.Fatal(err)
		}
		<-done
		return n == 2
	})
	x.write(nla+64, data)
	until(t, "promoted", func() bool { _, ok := server.PromotedAt(); return ok })
	got, err := receive(t, server, 6+900+4, true)
	if want := "first " + string(data) + "last"; err != nil || string(got) != want {
		t.Errorf("%v: %.20q", err, got)
	}
}
