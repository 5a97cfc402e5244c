package mesh

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"exnet/fabric"
	"exnet/fabric/emp"
	"exnet/fabric/identity"
	"exnet/fabric/internal/sealed"
	"exnet/internal/ctxend"
)

// dialTime is how long a host may take to answer at all.
const dialTime = 5 * time.Second

// slowClock is the difference of clocks from which on it is reported.
const slowClock = time.Minute

var (
	// errSelf says that an address led back to this node.
	errSelf = errors.New("the address leads to this node itself")
	// errTwice says that there is another connection, which stays.
	errTwice = errors.New("the peer has another connection")
)

// refusal is why a node refuses a connection to another one.
type refusal struct {
	err   error
	final bool // so it will be the next time
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// secureConn returns conn encrypted and the other side's certificate, or as it is and nil.
func (m *Mesh) secureConn(conn net.Conn, server bool) (net.Conn, *identity.Peer, error) {
	if err := conn.SetDeadline(time.Now().Add(greetTime)); err != nil {
		return nil, nil, err
	}
	if m.cfg.Store == nil {
		return conn, nil, nil
	}
	side := tls.Client
	if server {
		side = tls.Server
	}
	c := side(sealed.Under(conn), m.cfg.Store.TLS())
	if err := c.Handshake(); err != nil {
		return nil, nil, explainGreeting(err)
	}
	p, err := m.cfg.Store.PeerOf(c.ConnectionState())
	return c, &p, err
}

// explainGreeting says about a greeting that failed what to do.
func explainGreeting(err error) error {
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record), errors.Is(err, emp.ErrHello):
		return fmt.Errorf("%w: only one side has --plaintext, or it is another service", err)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return errors.New("it hung up during the handshake: only one side has --plaintext, or it is another service, or has too many callers")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer within %v: %w", greetTime, os.ErrDeadlineExceeded)
	}
	return withoutPorts(identity.Reason(err))
}

// ownHello returns what this side says.
func (m *Mesh) ownHello(h hello) hello {
	h.Fabric, h.Self, h.Clock = m.cfg.Fabric, m.cfg.Self, time.Now().UnixNano()
	at := m.Addr()
	h.Port = at.Port()
	if !at.Addr().IsUnspecified() {
		h.Host = at.Addr()
	}
	return h
}

// connectTo dials and exchanges hellos. The connection has a deadline still.
func (m *Mesh) connectTo(ctx context.Context, addr string, h hello) (conn net.Conn, reply hello, p *identity.Peer, err error) {
	d := net.Dialer{Timeout: dialTime, Control: m.cfg.Control}
	raw, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, reply, nil, &silence{withoutPorts(err)}
	}
	defer func() {
		if err != nil {
			raw.Close()
		}
	}()
	defer ctxend.Do(ctx, func() { raw.Close() })()
	if conn, p, err = m.secureConn(raw, false); err != nil {
		return nil, reply, nil, err
	}
	if err = sendMessage(conn, m.ownHello(h)); err == nil {
		err = receiveMessage(conn, maxHello, &reply)
	}
	if err != nil {
		return nil, reply, nil, explainGreeting(err)
	}
	switch {
	case reply.Code == codeSelf:
		return nil, reply, nil, errSelf
	case reply.Code == codeTwice:
		return nil, reply, nil, errTwice
	case reply.Refused != "":
		return nil, reply, nil, &refusal{fmt.Errorf("%w: %s", emp.ErrRefused, cleanWords(reply.Refused)), reply.Code == codeFinal}
	}
	return conn, reply, p, nil
}

// cleanWords makes another's words fit to be shown.
func cleanWords(s string) string {
	b := []rune(s[:min(len(s), 300)])
	for i, r := range b {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			b[i] = '?'
		}
	}
	return string(b)
}

// dialMember connects to a member, and returns who it is. For kindControl it returns the session.
func (m *Mesh) dialMember(ctx context.Context, addr string, h hello) (*session, emp.Description, error) {
	conn, reply, p, err := m.connectTo(ctx, addr, h)
	met := reply.Self
	if err != nil {
		return nil, met, err
	}
	if err = m.judgeHello(reply, p); err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil || h.Kind == kindAsk {
		conn.Close()
		return nil, met, err
	}
	s := m.newSession(conn, reply, p, addrPort(conn.RemoteAddr()))
	s.dialed, s.shared, s.cookie = true, reply.Shared, reply.Cookie
	return s, met, nil
}

// answerGreeting greets on the side that was connected to. It returns the function that serves
// the connection from then on. who is a stranger if its key is not trusted, or it is no node.
func (m *Mesh) answerGreeting(raw net.Conn) (serve func(context.Context), who caller, err error) {
	conn, p, err := m.secureConn(raw, true)
	if err != nil {
		return nil, who, err
	}
	var h hello
	if err := receiveMessage(conn, maxHello, &h); err != nil {
		if errors.Is(err, emp.ErrVersion) { // a header is enough to tell it so
			_ = sendMessage(conn, hello{Refused: err.Error(), Code: codeFinal})
		}
		return nil, who, explainGreeting(err)
	}
	who = callerOf(p)
	reply := m.ownHello(hello{Kind: h.Kind})
	if err = m.judgeHello(h, p); err == nil {
		serve, err = m.admitConn(conn, h, p, &reply)
	}
	if err != nil {
		reply.Refused, reply.Code = err.Error(), codeOf(err)
		_ = sendMessage(conn, reply) // it may be gone
		return nil, who, err
	}
	if err = sendMessage(conn, reply); err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		hangUp(conn) // which serve finds
	}
	return serve, who, nil
}

// codeOf returns the code of a refusal.
func codeOf(err error) string {
	var no *refusal
	switch {
	case errors.Is(err, errSelf):
		return codeSelf
	case errors.Is(err, errTwice):
		return codeTwice
	case errors.As(err, &no) && no.final:
		return codeFinal
	}
	return ""
}

// admitConn returns what serves the connection of a member after the reply, in which it enters
// what belongs there.
func (m *Mesh) admitConn(conn net.Conn, h hello, p *identity.Peer, reply *hello) (serve func(context.Context), err error) {
	switch h.Kind {
	case kindAsk:
		return func(context.Context) { conn.Close() }, m.contestID(h.Self, endpointOf(conn, h))
	case kindData:
		return m.servePart(conn, h)
	case kindControl:
	default:
		return nil, fmt.Errorf("%w: a connection of the kind %q", emp.ErrHello, cleanWords(h.Kind))
	}
	if !m.isRunning() {
		return nil, errors.New("the peer is still starting")
	}
	at := endpointOf(conn, h)
	if err := m.contestID(h.Self, at); err != nil {
		return nil, err
	}
	s := m.newSession(conn, h, p, at)
	s.shared, s.cookie = m.isLocal(h.Self), rand.Text()
	reply.Shared, reply.Cookie = s.shared, s.cookie
	return s.run, m.registerSession(s)
}

// endpointOf returns where a node that has connected listens, by its hello.
func endpointOf(conn net.Conn, h hello) netip.AddrPort {
	if h.Host.IsValid() {
		return netip.AddrPortFrom(h.Host, h.Port)
	}
	return netip.AddrPortFrom(addrPort(conn.RemoteAddr()).Addr(), h.Port)
}

// judgeHello says why this node and the other one cannot be in one fabric.
func (m *Mesh) judgeHello(h hello, p *identity.Peer) error {
	self, it := m.cfg.Self, h.Self
	final := func(format string, args ...any) error { return &refusal{fmt.Errorf(format, args...), true} }
	if d := time.Since(time.Unix(0, h.Clock)); d.Abs() > slowClock+greetTime {
		m.logOnce("clocks differ: certificates may seem to be out of time; set the clocks of both hosts (NTP)", fmt.Sprintf("node %d", it.Node),
			fmt.Errorf("the clock of node %d is %v %s", it.Node, d.Abs().Round(time.Minute), pickFirst(d > 0, "behind", "ahead")))
	}
	switch {
	case h.Fabric != m.cfg.Fabric:
		return final("%w: node %d is of fabric %s, node %d of fabric %s: use the same --fabric", identity.ErrFabric, it.Node, cleanWords(h.Fabric), self.Node, m.cfg.Fabric)
	case p != nil && p.Node != it.Node:
		return final("%w: it claims to be node %d, but its certificate is for node %d", identity.ErrNode, it.Node, p.Node)
	case it.Node == self.Node && it.Token == self.Token:
		return errSelf
	case it.Node == self.Node:
		return &refusal{errTaken(it.Node, ""), true}
	case it.Topology != self.Topology:
		return final("%w: node %d has the topology %q, node %d %q: use the same", emp.ErrConfig, it.Node, cleanWords(it.Topology), self.Node, self.Topology)
	case it.MAC != "" && self.MAC != "" && macPrefix(it.MAC) != macPrefix(self.MAC):
		return final("%w: node %d has the MAC address %s, node %d %s: use the same MAC prefix", emp.ErrConfig, it.Node, cleanWords(it.MAC), self.Node, self.MAC)
	}
	others := append(m.cfg.Local(), self)
	m.mu.Lock()
	for _, s := range m.sessions {
		others = append(others, s.desc)
	}
	m.mu.Unlock()
	for _, d := range others {
		if d.Node == it.Node {
			continue
		}
		for _, a := range d.Addrs {
			for _, b := range it.Addrs {
				if a.Addr() == b.Addr() {
					return final("%w: node %d has %v, which node %d wants: choose another", emp.ErrAddress, d.Node, a.Addr(), it.Node)
				}
			}
		}
	}
	return nil
}

// errTaken says that a node cannot have its ID, and where the node is that has it, if that is
// known.
func errTaken(id fabric.NodeID, where string) error {
	if where != "" {
		where = " by a node at " + where
	}
	return fmt.Errorf("node ID %d: %w%s: choose another with --node, or another key", id, fabric.ErrInUse, where)
}

// macPrefix returns what the MAC addresses of a fabric have in common: all but the node ID.
func macPrefix(mac string) string {
	const nodePart = len(":00:01")
	return mac[:max(0, len(mac)-nodePart)]
}

// isLocal says whether a node meets this one in the directory of the host, too.
func (m *Mesh) isLocal(d emp.Description) bool {
	for _, l := range m.cfg.Local() {
		if l.Node == d.Node && l.Token == d.Token {
			return true
		}
	}
	return false
}

// contestTime is how long a node has to show that it lives when another one claims its ID.
const contestTime = 3 * time.Second

// contestID says why a node cannot have its ID: another living node has it, which is told the
// address of the newcomer. A holder that does not live is given up.
func (m *Mesh) contestID(d emp.Description, at netip.AddrPort) error {
	for _, l := range m.cfg.Local() {
		if l.Node == d.Node && l.Token != d.Token {
			return &refusal{errTaken(d.Node, fmt.Sprintf("the same host as node %d", m.cfg.Self.Node)), true}
		}
	}
	m.mu.Lock()
	old := m.sessions[d.Node]
	m.mu.Unlock()
	if old == nil || old.desc.Token == d.Token {
		return nil
	}
	if old.isAlive(contestTime) {
		old.queueNews(news{Rival: &at})
		return &refusal{errTaken(d.Node, old.endpoint.String()), true}
	}
	old.end(errors.New("the peer has restarted"))
	return nil
}
