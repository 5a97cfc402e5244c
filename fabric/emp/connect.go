package emp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"exnet/fabric"
	"exnet/internal/ctxend"
)

// network is a kind of socket that keeps the boundaries of messages.
const network = "unixpacket"

// helloTime bounds the exchange of hellos.
const helloTime = 2 * time.Second

// dialPeer connects to a peer and exchanges hellos.
func (m *Member) dialPeer(ctx context.Context, p *peer) (*net.UnixConn, error) {
	to := p.desc
	var d net.Dialer
	c, err := d.DialContext(ctx, network, m.dir.file(fileName(to.Node, socketSuffix)))
	if err != nil {
		return nil, fmt.Errorf("emp: node %d: %w", to.Node, err)
	}
	conn := c.(*net.UnixConn)
	defer ctxend.Do(ctx, func() { conn.Close() })()
	if err := m.greetPeer(conn, p); err != nil {
		conn.Close()
		return nil, fmt.Errorf("emp: node %d: %w", to.Node, err)
	}
	return conn, nil
}

// greetPeer is the connecting side of the hellos.
func (m *Member) greetPeer(conn *net.UnixConn, p *peer) error {
	to := p.desc
	pid, err := m.dir.checkPeer(conn)
	if err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return err
	}
	if err := m.sayHello(conn, ""); err != nil {
		return err
	}
	h, err := hearHello(conn)
	switch {
	case err != nil:
		return err
	case h.Version != Version:
		return versionError(h.Node, int(h.Version))
	case h.Refused != "":
		return fmt.Errorf("%w: %s", ErrRefused, h.Refused)
	case h.Node != to.Node || h.Token != to.Token:
		return fmt.Errorf("%w: the peer claims to be node %d, but shows another token", ErrRefused, h.Node)
	}
	m.greeted(p, pid)
	return conn.SetDeadline(time.Time{})
}

// answerHello is the accepting side of the hellos. It returns the peer.
func (m *Member) answerHello(conn *net.UnixConn, scan func()) (*peer, error) {
	pid, err := m.dir.checkPeer(conn)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return nil, err
	}
	h, err := hearHello(conn)
	if err != nil {
		return nil, err
	}
	p, err := m.expect(h, scan)
	if err != nil {
		return nil, errors.Join(err, m.sayHello(conn, err.Error()))
	}
	m.greeted(p, pid)
	if err := m.sayHello(conn, ""); err != nil {
		return nil, err
	}
	return p, conn.SetDeadline(time.Time{})
}

// expect returns the peer that sent h, or the reason to refuse it.
func (m *Member) expect(h hello, scan func()) (*peer, error) {
	if h.Version != Version {
		return nil, versionError(h.Node, int(h.Version))
	}
	if h.Node <= m.self.Node {
		return nil, fmt.Errorf("%w: node %d has connected, but the higher ID connects to the lower", ErrRefused, h.Node)
	}
	p := m.peer(h)
	if p == nil {
		scan() // the node may just have joined
		p = m.peer(h)
	}
	if p == nil {
		return nil, fmt.Errorf("%w: node %d is not in the directory", ErrRefused, h.Node)
	}
	return p, nil
}

func (m *Member) peer(h hello) *peer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[h.Node]; p != nil && p.desc.Token == h.Token {
		return p
	}
	return nil
}

func versionError(n fabric.NodeID, version int) error {
	return fmt.Errorf("node %d: %w (its fabric version is %d, here it is %d): update one of them", n, ErrVersion, version, Version)
}

func (m *Member) sayHello(conn *net.UnixConn, refused string) error {
	b, err := hello{Version: Version, Node: m.self.Node, Token: m.self.Token, Refused: refused}.AppendBinary(nil)
	if err == nil {
		_, err = conn.Write(b)
	}
	return err
}

func hearHello(conn *net.UnixConn) (h hello, err error) {
	buf := make([]byte, helloLen+maxReason+1)
	n, err := conn.Read(buf)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return h, fmt.Errorf("%w: no hello within %v", ErrRefused, helloTime)
	}
	if err != nil {
		return h, err
	}
	return h, h.UnmarshalBinary(buf[:n])
}
