package directsockets

import (
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/segment"
	"exnet/internal/rules"
)

// policy is that of the process. Later changes of its environment have no effect.
var policy = sync.OnceValue(func() *rules.Policy { return rules.FromEnvironment(os.Stderr) })

// classify gives a connection its class, if the program has not.
func (c *Conn) classify() {
	if c.raw == nil {
		return
	}
	role := rules.Client
	if c.side == segment.Server {
		role = rules.Server
	}
	policy().Classify(c.raw, role, c.key.Server)
}

// class is that of the connection's packets, and of what a node carries of it.
func (c *Conn) class() rules.Class {
	if c.raw == nil {
		return 0
	}
	return rules.DSCP(c.raw, c.key.Server.Addr())
}

// tellNode writes to the segment what a node that carries the connection does for its packets.
func (c *Conn) tellNode(e *segment.End) {
	e.SetClass(uint8(c.class()))
	if c.raw != nil {
		_ = c.raw.Control(func(fd uintptr) { // an error: it is closed
			if ms, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); err == nil {
				e.SetUserTimeout(time.Duration(ms) * time.Millisecond)
			}
		})
	}
}

// whyTCP says why a connection, whose server's end has this address, or a listener, has to
// stay TCP; ReasonNone: it does not.
func (c *Config) whyTCP(side segment.Side, server netip.AddrPort, listener bool) Reason {
	p := policy()
	if !p.Set && !c.ByRule {
		return ReasonNone
	}
	role := rules.Client
	if side == segment.Server {
		role = rules.Server
	}
	switch action, notIncluded := p.Decide(role, server, listener); {
	case notIncluded && c.ByRule:
		return ReasonNotIncluded
	case action == rules.TCP && !notIncluded:
		return ReasonRule
	}
	return ReasonNone
}
