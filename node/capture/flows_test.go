package capture

import (
	"bytes"
	"net/netip"
	"runtime"
	"testing"
	"weak"

	"exnet/foreign"
)

// flowsLab is a capture of two namespaces.
type flowsLab struct {
	*testing.T
	buf  bytes.Buffer
	c    *Capture
	f    *Flows
	a, b *Watched
}

func newFlowsLab(t *testing.T) *flowsLab {
	l := &flowsLab{T: t, f: NewFlows()}
	var err error
	if l.c, err = Start(Config{Writer: &l.buf, Interfaces: []Interface{{Name: "a", IP: true}}}); err != nil {
		t.Fatal(err)
	}
	l.a, l.b = l.f.Watch(l.c.Source(0)), l.f.Watch(l.c.Add(Interface{Name: "b", IP: true}))
	return l
}

// at is an end of a connection.
func at(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(port)}), port)
}

// take has a namespace see a packet, whose byte names it.
func (l *flowsLab) take(w *Watched, from, to uint16, link int, name byte) {
	w.Take(Seen{Packet: Packet{Length: 1, Data: foreign.Private([]byte{name})}, Link: link, From: at(from), To: at(to)})
}

// written ends the capture, and fails unless these packets were written.
func (l *flowsLab) written(want string, comments ...string) {
	l.Helper()
	if err := l.c.Close(); err != nil {
		l.Fatal(err)
	}
	text := bytes.Clone(l.buf.Bytes())
	packets, _, _ := read(l.T, &l.buf)
	var got []byte
	for _, p := range packets {
		got = append(got, p.data...)
	}
	if string(got) != want {
		l.Errorf("written: %q, want %q", got, want)
	}
	for _, c := range comments {
		if n := bytes.Count(text, []byte(c)); n != 1 {
			l.Errorf("%d comments %q", n, c)
		}
	}
}

// A packet that comes before its connection is known waits, in its order; one of a connection that
// nobody knows is left out.
func TestFlowsWait(t *testing.T) {
	l := newFlowsLab(t)
	server := Known{Local: at(80), Remote: at(7), Server: true, Wanted: true, Process: "s/1"}
	l.take(l.a, 7, 80, 1, 'a')
	l.take(l.a, 9, 99, 1, 'x') // nobody's
	l.take(l.a, 80, 7, 1, 'b')
	l.a.Know([]Known{server})
	l.take(l.a, 7, 80, 1, 'c')
	l.take(l.a, 8, 80, 1, 'd') // of the same server
	l.take(l.a, 9, 99, 1, 'x')
	l.a.Know([]Known{server})
	l.a.Know([]Known{server})
	l.take(l.a, 9, 99, 1, 'x') // which is known to be nobody's
	if n := len(l.a.waiting); n != 0 {
		t.Errorf("%d packets wait", n)
	}
	l.a.Know([]Known{server, {Local: at(9), Remote: at(99), Wanted: true}})
	l.take(l.a, 9, 99, 1, 'e') // but somebody's now
	l.take(l.a, 5, 99, 1, 'x') // of another client of that server, which was not asked for
	if n := l.f.Count(); n != 3 {
		t.Errorf("%d connections, want 3", n)
	}
	l.written("abcde")
}

// A packet is written once, though it passes several interfaces and namespaces; the first one of
// each direction says whose it is.
func TestFlowsOnce(t *testing.T) {
	l := newFlowsLab(t)
	l.a.Know([]Known{{Local: at(7), Remote: at(80), Wanted: true, AnyClient: true, Process: "client/1"}})
	l.b.Know([]Known{{Local: at(80), Remote: at(7), Server: true, Wanted: true, Process: "server/2"}})
	for range 2 {
		l.take(l.a, 7, 80, 2, 'a')
		l.take(l.a, 7, 80, 3, 'x')
		l.take(l.b, 7, 80, 2, 'x')
		l.take(l.b, 80, 7, 2, 'x')
		l.take(l.a, 80, 7, 3, 'b')
		l.take(l.a, 80, 7, 2, 'x')
	}
	l.written("abab", "client/1 to server/2", "server/2 to client/1")
}

// What waits is bounded, and what had no room is counted.
func TestFlowsLost(t *testing.T) {
	l := newFlowsLab(t)
	big := foreign.Private(make([]byte, maxWaiting/2))
	for range 3 {
		l.a.Take(Seen{Packet: Packet{Data: big}, From: at(1), To: at(2)})
	}
	if s := l.c.Stats(0); s.Lost() != 1 {
		t.Errorf("%d were lost, want 1", s.Lost())
	}
	l.written("")
}

// A namespace that has gone keeps nothing, and its connections are written as another one sees
// them.
func TestFlowsLeave(t *testing.T) {
	l := newFlowsLab(t)
	known := []Known{{Local: at(7), Remote: at(80), Wanted: true}}
	l.a.Know(known)
	l.b.Know(known)
	l.take(l.a, 7, 80, 1, 'a')
	l.take(l.b, 7, 80, 1, 'x')
	l.take(l.a, 5, 6, 1, 'x') // waits
	gone := weak.Make(l.a)
	l.a.Leave()
	l.a = nil
	l.take(l.b, 7, 80, 1, 'b')
	runtime.GC()
	if gone.Value() != nil {
		t.Error("it is still there")
	}
	if n := l.f.Count(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	l.written("ab")
}
