package directsockets

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/udp"
	"exnet/internal/rules"
)

// UDPConn is a UDP socket, the shadow, whose datagrams go through shared memory to and from those
// sockets of the network namespace that do the same (SPEC.md, section 10). It implements net.Conn,
// net.PacketConn and the further methods of net.UDPConn.
//
// Concurrency: all methods may be called from many goroutines.
type UDPConn struct {
	*net.UDPConn             // what is not here goes by the kernel
	udp          *udp.Socket // nil: everything does
	remote       netip.AddrPort
}

// ListenPacket announces an address, as net.ListenPacket does. The result is a *UDPConn for UDP
// networks.
func ListenPacket(network, address string) (net.PacketConn, error) {
	return new(ListenConfig).ListenPacket(context.Background(), network, address)
}

// ListenPacket announces an address. The result is a *UDPConn for UDP networks.
func (l *ListenConfig) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	cfg, err := l.Config.withDefaults()
	if err != nil {
		return nil, err
	}
	c, err := l.ListenConfig.ListenPacket(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if u, ok := c.(*net.UDPConn); ok {
		return newUDPConn(u, cfg), nil
	}
	return c, nil
}

// ListenUDP is ListenPacket for an address that needs no name server, as net.ListenUDP has it.
func ListenUDP(network string, laddr *net.UDPAddr) (*UDPConn, error) {
	c, err := net.ListenUDP(network, laddr)
	if err != nil {
		return nil, err
	}
	return NewUDPConn(c, Config{})
}

// DialUDP connects a UDP socket, as net.DialUDP does.
func DialUDP(network string, laddr, raddr *net.UDPAddr) (*UDPConn, error) {
	c, err := net.DialUDP(network, laddr, raddr)
	if err != nil {
		return nil, err
	}
	return NewUDPConn(c, Config{})
}

// NewUDPConn makes a UDPConn of a socket that was made by other means, and takes it over.
func NewUDPConn(shadow *net.UDPConn, config Config) (*UDPConn, error) {
	cfg, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return newUDPConn(shadow, cfg), nil
}

func newUDPConn(shadow *net.UDPConn, cfg *Config) *UDPConn {
	c := &UDPConn{UDPConn: shadow}
	if raw, err := shadow.SyscallConn(); err == nil {
		if r, ok := shadow.RemoteAddr().(*net.UDPAddr); ok {
			c.remote = r.AddrPort()
		}
		local, _ := shadow.LocalAddr().(*net.UDPAddr)
		c.udp = newUDPSocket(raw, local.AddrPort(), cfg)
	}
	return c
}

// NewUDPSocket makes what carries the datagrams of a UDP socket through memory, for those who have
// the socket themselves, such as package net of a program that exn-go built. nil: there is nothing
// that could.
func NewUDPSocket(raw syscall.RawConn, local netip.AddrPort, config Config) *udp.Socket {
	c, err := config.withDefaults()
	if err != nil {
		return nil
	}
	return newUDPSocket(raw, local, c)
}

func newUDPSocket(raw syscall.RawConn, local netip.AddrPort, config *Config) *udp.Socket {
	broker := config.brokerClient()
	if broker == nil {
		return nil
	}
	direct := func(role rules.Role, at netip.AddrPort, listener bool) (why connstats.Why, reliable bool) {
		at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		p := policy()
		if !p.Set && !config.ByRule {
			return connstats.WhyNothing, false
		}
		action, notIncluded := p.DecideUDP(role, at, listener)
		switch {
		case action != rules.TCP || notIncluded && !config.ByRule:
			return connstats.WhyNothing, action == rules.Reliable
		case notIncluded:
			return connstats.WhyAddressNotWanted, false
		}
		return connstats.WhyRule, false
	}
	ring := 0
	if config.Ring != 0 { // a power of two; DefaultRing if it is none that a flow can have
		for ring = 128 << 10; ring < config.Ring && ring < 4<<20; ring *= 2 {
		}
	}
	return udp.New(udp.Config{
		Raw: raw, Local: local, Broker: broker, Spin: config.Spin, Ring: ring,
		Send: func(to netip.AddrPort) (connstats.Why, bool) { return direct(rules.Client, to, false) },
		Receive: func(at netip.AddrPort) bool {
			why, _ := direct(rules.Server, at, at.Addr().IsUnspecified())
			return why == connstats.WhyNothing
		},
		Offers: offersOf(config), Explain: config.Explain,
	})
}

// offersOf is after how many datagrams a flow is offered.
func offersOf(c *Config) int {
	switch {
	case c.Eager:
		return 1
	case c.fixed:
		return c.UpgradeSends
	}
	return 0
}

// inSocket is what may have datagrams for c; nil: only the kernel has.
func (c *UDPConn) inSocket() *udp.Socket {
	if c.udp == nil || c.udp.Plain() {
		return nil
	}
	return c.udp
}

// outSocket is what may send datagrams of c; nil: only the kernel may.
func (c *UDPConn) outSocket() *udp.Socket {
	if c.udp == nil || c.udp.Left() {
		return nil
	}
	return c.udp
}

// ReadFromUDPAddrPort is that of net.UDPConn.
func (c *UDPConn) ReadFromUDPAddrPort(b []byte) (n int, addr netip.AddrPort, err error) {
	u := c.inSocket()
	if u == nil {
		return c.UDPConn.ReadFromUDPAddrPort(b)
	}
	if d, ok := u.Receive(b); ok {
		return d.N, c.senderAddr(d), asRead(d.Err)
	}
	n, addr, err = c.UDPConn.ReadFromUDPAddrPort(b)
	u.Received(addr)
	return n, addr, err
}

// asRead is an error of Receive as a read of the kernel's socket has it.
func asRead(err error) error {
	if err == nil {
		return nil
	}
	var e *net.OpError
	if errors.As(err, &e) {
		e.Op = "read"
	}
	return err
}

// senderAddr is the address of a sender as the kernel would say it: a socket of IPv6 has IPv4's
// mapped.
func (c *UDPConn) senderAddr(d udp.Datagram) netip.AddrPort { return c.udp.Own(d.From) }

// ReadFromUDP is that of net.UDPConn.
func (c *UDPConn) ReadFromUDP(b []byte) (n int, addr *net.UDPAddr, err error) {
	n, from, err := c.ReadFromUDPAddrPort(b)
	if from.IsValid() {
		addr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
	}
	return n, addr, err
}

// ReadFrom implements net.PacketConn.
func (c *UDPConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, addr, err := c.ReadFromUDP(b)
	if addr == nil {
		return n, nil, err
	}
	return n, addr, err
}

// Read implements net.Conn.
func (c *UDPConn) Read(b []byte) (int, error) {
	u := c.inSocket()
	if u == nil {
		return c.UDPConn.Read(b)
	}
	if d, ok := u.Receive(b); ok {
		return d.N, asRead(d.Err)
	}
	n, err := c.UDPConn.Read(b)
	from := c.remote
	if err != nil {
		from = netip.AddrPort{}
	}
	u.Received(from)
	return n, err
}

// ReadMsgUDPAddrPort is that of net.UDPConn.
func (c *UDPConn) ReadMsgUDPAddrPort(b, oob []byte) (n, oobn, flags int, addr netip.AddrPort, err error) {
	u := c.inSocket()
	if u == nil {
		return c.UDPConn.ReadMsgUDPAddrPort(b, oob)
	}
	if d, ok := u.Receive(b); ok && d.Err != nil {
		return 0, 0, 0, netip.AddrPort{}, asRead(d.Err)
	} else if ok {
		oobn, flags = u.PutControl(oob, d)
		if d.N < d.Len {
			flags |= syscall.MSG_TRUNC
		}
		return d.N, oobn, flags, c.senderAddr(d), nil
	}
	n, oobn, flags, addr, err = c.UDPConn.ReadMsgUDPAddrPort(b, oob)
	from := addr
	if err != nil {
		from = netip.AddrPort{}
	}
	u.Received(from)
	return n, oobn, flags, addr, err
}

// ReadMsgUDP is that of net.UDPConn.
func (c *UDPConn) ReadMsgUDP(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error) {
	n, oobn, flags, from, err := c.ReadMsgUDPAddrPort(b, oob)
	if from.IsValid() {
		addr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
	}
	return n, oobn, flags, addr, err
}

// Write implements net.Conn.
func (c *UDPConn) Write(b []byte) (int, error) {
	u := c.outSocket()
	if u == nil || !c.remote.IsValid() {
		return c.UDPConn.Write(b)
	}
	k, sent := u.Send(b, c.remote, nil)
	if sent {
		return len(b), nil
	}
	n, err := c.UDPConn.Write(b)
	k.Ended(n, err)
	return n, err
}

// WriteToUDPAddrPort is that of net.UDPConn.
func (c *UDPConn) WriteToUDPAddrPort(b []byte, addr netip.AddrPort) (int, error) {
	u := c.outSocket()
	if u == nil || c.remote.IsValid() { // an error
		return c.UDPConn.WriteToUDPAddrPort(b, addr)
	}
	k, sent := u.Send(b, addr, nil)
	if sent {
		return len(b), nil
	}
	n, err := c.UDPConn.WriteToUDPAddrPort(b, addr)
	k.Ended(n, err)
	return n, err
}

// WriteToUDP is that of net.UDPConn.
func (c *UDPConn) WriteToUDP(b []byte, addr *net.UDPAddr) (int, error) {
	u := c.outSocket()
	if addr == nil || u == nil || c.remote.IsValid() || addr.Zone != "" || !addr.AddrPort().IsValid() {
		return c.UDPConn.WriteToUDP(b, addr)
	}
	at := addr.AddrPort()
	k, sent := u.Send(b, at, nil)
	if sent {
		return len(b), nil
	}
	n, err := c.UDPConn.WriteToUDP(b, addr)
	k.Ended(n, err)
	return n, err
}

// WriteTo implements net.PacketConn.
func (c *UDPConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	if a, ok := addr.(*net.UDPAddr); ok {
		return c.WriteToUDP(b, a)
	}
	return c.UDPConn.WriteTo(b, addr)
}

// WriteMsgUDPAddrPort is that of net.UDPConn.
func (c *UDPConn) WriteMsgUDPAddrPort(b, oob []byte, addr netip.AddrPort) (n, oobn int, err error) {
	to := addr
	if c.remote.IsValid() {
		to = c.remote
	}
	u := c.outSocket()
	if u == nil || !to.IsValid() || addr.IsValid() && c.remote.IsValid() {
		return c.UDPConn.WriteMsgUDPAddrPort(b, oob, addr)
	}
	k, sent := u.Send(b, to, udp.ParseControl(oob))
	if sent {
		return len(b), len(oob), nil
	}
	n, oobn, err = c.UDPConn.WriteMsgUDPAddrPort(b, oob, addr)
	k.Ended(n, err)
	return n, oobn, err
}

// WriteMsgUDP is that of net.UDPConn.
func (c *UDPConn) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if addr != nil && addr.Zone != "" || addr != nil && !addr.AddrPort().IsValid() {
		return c.UDPConn.WriteMsgUDP(b, oob, addr)
	}
	return c.WriteMsgUDPAddrPort(b, oob, addr.AddrPort())
}

// SetDeadline implements net.Conn.
func (c *UDPConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *UDPConn) SetReadDeadline(t time.Time) error {
	err := c.UDPConn.SetReadDeadline(t)
	if err == nil && c.udp != nil {
		c.udp.SetReadDeadline(t)
	}
	return err
}

// SetWriteDeadline implements net.Conn.
func (c *UDPConn) SetWriteDeadline(t time.Time) error {
	err := c.UDPConn.SetWriteDeadline(t)
	if err == nil && c.udp != nil {
		c.udp.SetWriteDeadline(t)
	}
	return err
}

// SetReadBuffer is that of net.UDPConn: it bounds what waits in memory, too.
func (c *UDPConn) SetReadBuffer(bytes int) error {
	err := c.UDPConn.SetReadBuffer(bytes)
	if c.udp != nil {
		c.udp.Changed()
	}
	return err
}

// SyscallConn gives access to the descriptor. Options may be set by Control; Read and Write have
// the datagrams go by the kernel from then on.
func (c *UDPConn) SyscallConn() (syscall.RawConn, error) {
	raw, err := c.UDPConn.SyscallConn()
	if err != nil || c.udp == nil {
		return raw, err
	}
	return udpRaw{raw, c.udp}, nil
}

// udpRaw is the descriptor of a UDPConn.
type udpRaw struct {
	syscall.RawConn
	udp *udp.Socket
}

func (r udpRaw) Control(f func(fd uintptr)) error {
	defer r.udp.Changed()
	return r.RawConn.Control(f)
}

func (r udpRaw) Read(f func(fd uintptr) bool) error {
	r.udp.Leave()
	return r.RawConn.Read(f)
}

func (r udpRaw) Write(f func(fd uintptr) bool) error {
	r.udp.Leave()
	return r.RawConn.Write(f)
}

// File is that of net.UDPConn. The datagrams go by the kernel from then on.
func (c *UDPConn) File() (*os.File, error) {
	if c.udp != nil {
		c.udp.Leave()
	}
	return c.UDPConn.File()
}

// Close closes the socket.
func (c *UDPConn) Close() error {
	if c.udp != nil {
		c.udp.Close()
	}
	return c.UDPConn.Close()
}

// Stats says how the datagrams went.
func (c *UDPConn) Stats() udp.Stats {
	if c.udp == nil {
		return udp.Stats{}
	}
	return c.udp.Stats()
}
