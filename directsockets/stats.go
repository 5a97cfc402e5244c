package directsockets

import (
	"fmt"
	"iter"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/segment"
)

// Mode is how a direction of a connection carries its bytes.
type Mode uint8

// The modes. The zero Mode is invalid.
const (
	ModeTCP     Mode = Mode(connstats.ModeTCP)     // on the shadow
	ModeDirect  Mode = Mode(connstats.ModeDirect)  // in memory
	ModeDemoted Mode = Mode(connstats.ModeDemoted) // on the shadow again, for good
	ModeClosed  Mode = Mode(connstats.ModeClosed)
)

func (m Mode) String() string { return connstats.Mode(m).String() }

// Reason says why a connection has its mode.
type Reason uint8

// The reasons.
const (
	ReasonNone        = Reason(connstats.WhyNothing)
	ReasonNotYet      = Reason(connstats.WhyNotYet)           // too few bytes have moved
	ReasonNoBroker    = Reason(connstats.WhyNoBroker)         // start one: exn-tun up, exn-run
	ReasonNoListener  = Reason(connstats.WhyNoListener)       // the server does not use direct sockets
	ReasonRule        = Reason(connstats.WhyRule)             // Config.Off, or EXNET_RULES
	ReasonOffered     = Reason(connstats.WhyOffered)          // the server has not taken it up yet
	ReasonRefused     = Reason(connstats.WhyRefused)          // the server, or the broker, did not want it
	ReasonNoMemory    = Reason(connstats.WhyNoMemory)         // or descriptors
	ReasonProgram     = Reason(connstats.WhyProgram)          // Demote, File
	ReasonPeerDemoted = Reason(connstats.WhyPeer)             // the peer did
	ReasonBreach      = Reason(connstats.WhyBreach)           // the peer has written an impossible value
	ReasonNotIncluded = Reason(connstats.WhyAddressNotWanted) // Config.ByRule
	ReasonUnsupported = Reason(connstats.WhyUnsupportedCall)  // SyscallConn's Read or Write
	ReasonNoOffer     = Reason(connstats.WhyNoOffer)          // the client has offered nothing to this server
	ReasonExpired     = Reason(connstats.WhyExpired)          // the server did not take it up in time
	ReasonUnreachable = Reason(connstats.WhyUnreachable)      // the peer's node
	ReasonVersion     = Reason(connstats.WhyVersion)          // the broker's is another
	ReasonSilent      = Reason(connstats.WhySilent)           // the broker does not answer
	ReasonNoRule      = Reason(connstats.WhyNoRule)           // sends it to the server's host through the fabric
	ReasonIdle        = Reason(connstats.WhyIdle)             // it is direct from the next byte on
	ReasonNetwork     = Reason(connstats.WhyNetwork)          // it does not carry the connection any more
	ReasonNoPair      = Reason(connstats.WhyNoPair)           // the agent does not know the other end
	ReasonSwitchedOff = Reason(connstats.WhySwitchedOff)      // by an operator (exn-tun direct off)
)

func (r Reason) String() string { return connstats.Why(r).String() }

// Stats says how a connection carries its bytes, and what it has carried.
type Stats struct {
	RX, TX Mode   // of the inbound and the outbound direction
	Reason Reason // of the connection's mode
	Device uint8  // virtual device (thesis, equation 5.3)

	Counters [segment.CounterWords]uint64 // by segment.SentDirect and those after it
}

// Direct reports whether both directions go through memory.
func (s Stats) Direct() bool { return s.RX == ModeDirect && s.TX == ModeDirect }

func (s Stats) String() string {
	text := fmt.Sprintf("rx %v, tx %v", s.RX, s.TX)
	if s.Reason != ReasonNone {
		text += ": " + s.Reason.String()
	}
	return text
}

// All lists the counters by name.
func (s Stats) All() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for i, n := range s.Counters {
			if !yield(counterNames[i], n) {
				return
			}
		}
	}
}

var counterNames = [segment.CounterWords]string{
	"sent direct", "received direct", "sent on the shadow", "received on the shadow",
	"sent VELO", "sent VELO_LAST", "sent RMA_INFO", "sent RMA_AVAIL", "sent SHUTDOWN", "sent DEMOTE",
	"received VELO", "received VELO_LAST", "received RMA_INFO", "received RMA_AVAIL", "received SHUTDOWN", "received DEMOTE",
	"ring used", "ring size", "sleeps", "wake-ups sent", "spins that found", "spins that found nothing",
	"zero-copy sent", "zero-copy received",
}

// Stats returns the statistics of the connection.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.statsLocked()
}

func (c *Conn) statsLocked() Stats {
	if c.final != nil {
		return *c.final
	}
	s := Stats{RX: c.modes[0], TX: c.modes[1], Reason: c.why, Device: uint8(c.key.Server.Port() & 0xf)}
	if c.retired {
		s.Counters[segment.SentShadow], s.Counters[segment.ReceivedShadow] = c.total[0], c.total[1]
		return s
	}
	for i := range s.Counters {
		s.Counters[i] = c.count[i].Load()
	}
	return s
}

// keepStatsLocked keeps what Stats says from now on: the counters go to another connection. Most
// connections carry a request on the shadow, and nothing else.
func (c *Conn) keepStatsLocked() {
	c.total = [2]uint64{c.count[segment.SentShadow].Load(), c.count[segment.ReceivedShadow].Load()}
	for i := range c.count {
		if i != segment.SentShadow && i != segment.ReceivedShadow && c.count[i].Load() != 0 {
			s := c.statsLocked()
			c.final = &s
			break
		}
	}
	c.retired = true
}

// setMode says how a direction carries its bytes now.
func (c *Conn) setMode(h *half, m Mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := 0
	if h == &c.tx.half {
		i = 1
	}
	if c.modes[i] == ModeClosed || c.closed {
		return
	}
	c.modes[i] = m
	if m == ModeDirect {
		c.why = ReasonNone
		path := connstats.PathMemory
		if h.end.Relayed() {
			path = connstats.PathFabric
			if h.end.Hardware() {
				path = connstats.PathRDMA
			}
		}
		c.entry.SetPath(path)
	}
	c.showLocked()
}

// setReason says why.
func (c *Conn) setReason(why Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.why != why {
		c.why = why
		c.showLocked()
	}
}

func (c *Conn) showLocked() {
	m := ModeTCP
	for _, want := range []Mode{ModeDemoted, ModeDirect} {
		if c.modes[0] == want || c.modes[1] == want {
			m = want
		}
	}
	c.entry.Set(connstats.Mode(m), connstats.Why(c.why))
}
