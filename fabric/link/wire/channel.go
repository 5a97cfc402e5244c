package wire

// channel is a virtual channel (thesis 004, 5.4.3): what one carries cannot hold up the others.
// The names are HyperTransport's.
type channel uint8

// The channels in the order in which they take turns.
const (
	// response answers what the peer has asked for. Its receiver works off every message at once.
	response channel = iota
	// nonPosted asks the peer for data (GET). Such a message keeps its buffer until it is answered.
	nonPosted
	// posted is the rest: messages, and the data of PUTs. It is worked off at once, too.
	posted
	channels
)

// channelOf is the channel of each kind of message. Open and Probe are not nonPosted, so that they
// need not wait for GETs.
var channelOf = [kindEnd]channel{
	kindOpened: response, kindReturn: response, kindDown: response, kindData: response, kindGetEnd: response,
	kindPutEnd: response, kindProbe: response,
	kindGet:  nonPosted,
	kindOpen: posted, kindVELO: posted, kindPut: posted, kindPutData: posted,
}

// limits say for each channel the number of the first message, modulo 2^16, for which there is no
// buffer. They only grow, so that lost and late ones do no harm.
type limits [channels]uint16

// credits are those of one side: a message of a channel is sent only while the peer has a buffer
// for it. It has no clock and no medium of its own.
//
// Concurrency: its owner's.
type credits struct {
	room  limits // buffers of a channel, here and at the peer
	sent  limits // messages sent
	limit limits // of the peer
	came  limits // messages that came
	freed limits // of these, whose buffer is free again
}

func (c *credits) init(room int) {
	for ch := range c.room {
		c.room[ch] = uint16(room)
	}
	c.room[nonPosted] = uint16(min(room, maxGets))
	c.limit = c.room
}

// hasCredit reports whether the peer has a buffer for a message.
func (c *credits) hasCredit(ch channel) bool { return int16(c.limit[ch]-c.sent[ch]) > 0 }

// takeLimits takes the limits of the peer.
func (c *credits) takeLimits(l limits) {
	for ch := range l {
		if int16(l[ch]-c.limit[ch]) > 0 {
			c.limit[ch] = l[ch]
		}
	}
}

// countArrived counts a message of the peer. It reports whether there was a buffer for it.
func (c *credits) countArrived(ch channel) bool {
	c.came[ch]++
	return c.came[ch]-c.freed[ch] <= c.room[ch]
}

// ownLimits are those for the peer.
func (c *credits) ownLimits() (l limits) {
	for ch := range l {
		l[ch] = c.freed[ch] + c.room[ch]
	}
	return l
}

// lane is what waits to be sent on a channel: messages, and then pieces of transfers in turn.
type lane struct {
	queue   []queued
	streams []*stream
}

func (a *lane) empty() bool { return len(a.queue)+len(a.streams) == 0 }
