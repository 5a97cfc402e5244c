package directsockets

import (
	"net/netip"
	"os"
	"sync"

	"exnet/directsockets/segment"
	"exnet/internal/rules"
)

// policy is that of the process. What it does to its environment later says nothing.
var policy = sync.OnceValue(func() *rules.Policy { return rules.FromEnvironment(os.Stderr) })

// decide says why a connection, whose server's end has this address, or a listener, has to
// stay TCP; ReasonNone: it does not.
func (c *Config) decide(side segment.Side, server netip.AddrPort, listener bool) Reason {
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
