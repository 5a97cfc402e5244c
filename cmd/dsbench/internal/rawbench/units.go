package rawbench

import (
	"errors"
	"fmt"
	"io"
	"net"

	"exnet/fabric"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/internal/tcpbench"
)

// The transports.
const (
	VELO tcpbench.Transport = "velo"
	RMA  tcpbench.Transport = "rma"
	Ring tcpbench.Transport = "ring"
)

const (
	// MaxVELO and MaxRMA are the largest messages.
	MaxVELO = velo.MaxPayload
	MaxRMA  = rma.MaxTransfer

	// depth is how many GETs are under way in a stream.
	depth = 4

	// lookOps is how often an end does something between two looks for the other one's stop.
	lookOps = 64
)

func init() {
	add := func(t tcpbench.Transport, kinds map[tcpbench.Kind]func(*rig) io.ReadWriteCloser) {
		tcpbench.AddTransport(t, func(s tcpbench.Spec, meet *net.UnixConn, listens bool) (io.ReadWriteCloser, error) {
			of := kinds[s.Kind]
			if of == nil {
				return nil, errors.Join(fmt.Errorf("%s cannot be measured over %s", s.Kind, t), meet.Close())
			}
			r, err := newRig(s.Size, meet, listens)
			if err != nil {
				return nil, err
			}
			return of(r), nil
		})
	}
	ofMessages := func(r *rig) io.ReadWriteCloser { return &messages{rig: r} }
	add(VELO, map[tcpbench.Kind]func(*rig) io.ReadWriteCloser{
		tcpbench.PingPong: ofMessages, tcpbench.Rate: ofMessages, tcpbench.Stream: ofMessages,
	})
	add(RMA, map[tcpbench.Kind]func(*rig) io.ReadWriteCloser{
		tcpbench.PingPong: func(r *rig) io.ReadWriteCloser { return puts{r} },
		tcpbench.Stream:   func(r *rig) io.ReadWriteCloser { return &gets{rig: r} },
	})
}

// errStopped says that the other end has had enough.
var errStopped = errors.New("the other end has stopped")

// gone says that the other end is not there any more.
func gone(err error) bool {
	return errors.Is(err, errDown) || errors.Is(err, fabric.ErrPeerDown) || errors.Is(err, fabric.ErrNoRoute)
}

// messages is a connection by VELO.
type messages struct {
	*rig
	sent int
}

func (m *messages) Write(p []byte) (int, error) {
	if m.sent++; m.sent%lookOps == 0 && m.stopped() {
		return 0, errStopped
	}
	return len(p), m.send(tagData, p)
}

// Read takes a message. It leaves the bytes where they are: a copy is no part of what the unit
// does.
func (m *messages) Read([]byte) (int, error) {
	tag, msg, err := m.receive()
	switch {
	case err == nil && tag != tagStop:
		m.velo.Advance()
		return len(msg), nil
	case err == nil || gone(err): // the stop stays, for Close
		return 0, io.EOF
	}
	return 0, err
}

// puts is a connection by RMA, on which a write is a PUT to the other end's sink. A notification
// of its completer tells the other end.
type puts struct{ *rig }

func (r puts) Write(p []byte) (int, error) {
	return len(p), r.rma.Put(rma.PutReq{
		Local: r.source.NLA(), Remote: r.farSink, Len: len(p), Node: r.peer, VPID: vpid,
		Notify: rma.NotifyRequester | rma.NotifyCompleter, // table 3.1 has no other with the latter
	})
}

func (r puts) Read(p []byte) (int, error) {
	if err := r.notified(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// gets is a connection by RMA, on which a read is a GET from the other end's source, depth of
// which are under way.
type gets struct {
	*rig
	under int
}

func (g *gets) Read([]byte) (int, error) {
	for ; g.under < depth; g.under++ {
		err := g.rma.Get(rma.GetReq{
			Local: g.sink.NLA(), Remote: g.farSource, Len: g.size, Node: g.peer, VPID: vpid, Notify: rma.NotifyCompleter,
		})
		if err != nil {
			return 0, err
		}
	}
	g.under--
	if err := g.notified(); err != nil {
		return 0, err
	}
	return g.size, nil
}

// Write polls, so that the other end's requests are served at once.
func (g *gets) Write(p []byte) (int, error) {
	for range lookOps {
		g.rma.Next()
		if err := g.idle(); err != nil {
			return 0, err
		}
	}
	if g.stopped() {
		return 0, errStopped
	}
	return len(p), nil
}

func (g *gets) Close() error {
	for ; g.under > 0; g.under-- {
		if err := g.notified(); err != nil {
			return err
		}
	}
	return g.rig.Close()
}
