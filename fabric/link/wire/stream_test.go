package wire_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"exnet/fabric/fabrictest"
	"exnet/fabric/link/wire"
)

// tcp returns the two ends of a TCP connection.
func tcp(tb testing.TB) (conns [2]net.Conn) {
	tb.Helper()
	conns[0], conns[1] = fabrictest.TCP(tb)
	return conns
}

// overTCP is a medium over a TCP connection.
func overTCP(tb testing.TB, f wire.Faults) (a, b wire.Medium) {
	tb.Helper()
	x, y, err := ends(tcp(tb), f)
	if err != nil {
		tb.Fatal(err)
	}
	return x, y
}

// ends makes a medium of a connection.
func ends(conns [2]net.Conn, f wire.Faults) (a, b *wire.Stream, err error) {
	other := make(chan error)
	go func() {
		var err error
		b, err = wire.OverStream(conns[1], f)
		other <- err
	}()
	a, err = wire.OverStream(conns[0], f)
	return a, b, errors.Join(err, <-other)
}

// A connection between hosts is a medium as good as another, too.
func TestStreamSuite(t *testing.T) {
	fabrictest.Suite(t, connKind("bad", overTCP, bad))
}

// An end that is closed ends the other, without waiting for what that does not read; encrypted
// ones, too.
func TestStreamEnds(t *testing.T) {
	for name, secure := range map[string]bool{"TCP": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			conns := tcp(t)
			if secure {
				conns[0], conns[1] = tls.Client(conns[0], fabrictest.TLSConfig(t)), tls.Server(conns[1], fabrictest.TLSConfig(t))
			}
			a, b, err := ends(conns, wire.Faults{})
			if err != nil {
				t.Fatal(err)
			}
			packet := make([]byte, wire.MaxPacket)
			for range 20000 { // more than buffers hold: the rest is lost
				if err := a.Send(packet); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
			if err := a.Send(packet); err == nil {
				t.Error("sent by an end that is closed")
			}
			if n, err := a.Receive(packet); err == nil {
				t.Errorf("received %d bytes at an end that is closed", n)
			}
			came := 0
			for err = nil; err == nil; came++ {
				_, err = b.Receive(packet)
			}
			if came < 10 || came > 20000 {
				t.Errorf("%d packets came", came)
			}
			if err := b.SetFaults(wire.Faults{Drop: 2}); !errors.Is(err, wire.ErrFaults) {
				t.Error(err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is no such medium, or no packet, is refused in one line.
func TestStreamRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		says string
		want error
	}{
		"version": {"EXNW\x01\x00\x00\x00", wire.ErrVersion},
		"another": {"EXNSTREAM...........", wire.ErrHello},
		"short":   {"EXN", nil},
	} {
		conns := tcp(t)
		if _, err := io.WriteString(conns[1], c.says); err != nil {
			t.Fatal(err)
		}
		conns[1].Close()
		m, err := wire.OverStream(conns[0], wire.Faults{})
		if m != nil || err == nil || c.want != nil && !errors.Is(err, c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	if m, err := wire.OverStream(tcp(t)[0], wire.Faults{Delay: -1}); m != nil || !errors.Is(err, wire.ErrFaults) {
		t.Errorf("%v, %v", m, err)
	}
	conns := tcp(t)
	if _, err := io.WriteString(conns[1], "EXNW\x02\x00\x00\x00\xff\xff..."); err != nil {
		t.Fatal(err)
	}
	m, err := wire.OverStream(conns[0], wire.Faults{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if n, err := m.Receive(make([]byte, wire.MaxPacket+1)); err == nil || !strings.Contains(err.Error(), "a packet of 65535 bytes") {
		t.Errorf("%d, %v", n, err)
	}
}

// FuzzStream has the other end of a connection send anything behind its hello: nothing that comes
// of it is longer than a packet, and it ends.
func FuzzStream(f *testing.F) {
	f.Add([]byte("\x03\x00abc\x00\x00\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		conns := tcp(t)
		_, err := conns[1].Write(append([]byte("EXNW\x02\x00\x00\x00"), b...))
		if err := errors.Join(err, conns[1].(*net.TCPConn).CloseWrite()); err != nil {
			t.Fatal(err)
		}
		m, err := wire.OverStream(conns[0], wire.Faults{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		for came, p := 0, make([]byte, wire.MaxPacket+1); ; {
			n, err := m.Receive(p)
			if err != nil {
				return
			}
			if came += n; n > wire.MaxPacket || came > len(b) {
				t.Fatalf("%d bytes of %d", came, len(b))
			}
		}
	})
}
