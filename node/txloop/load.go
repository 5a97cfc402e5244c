package txloop

// load says whether so much passes that it pays to nap before waiting.
//
// It does when much has passed since the last wait. But a thread that is woken by
// the first packet of a stream, and before the others are there, would wait for each
// of them; so it does, too, when many waits in a row each had a large packet come in
// one direction. A request with its answer that is waited for has not so much, or
// goes both ways.
type load struct {
	sent, received int // bytes since the last wait
	waits          int // in a row that were each followed by a large packet, one way
}

const (
	// napBytes is how much must have passed since the thread last waited: four of
	// the largest packets, more than any request with its answer that is waited for.
	napBytes = 4 * 65536
	// napWaits is how many waits in a row must have been for one large packet.
	napWaits   = 8
	largeBytes = 32768
)

func (l *load) addBytes(sent, received int) {
	l.sent += sent
	l.received += received
}

// isHeavy reports whether to nap.
func (l *load) isHeavy() bool {
	return l.sent+l.received >= napBytes || l.waits >= napWaits && l.oneWay()
}

func (l *load) oneWay() bool {
	more, less := max(l.sent, l.received), min(l.sent, l.received)
	return more >= largeBytes && less <= more/8
}

// noteWait says that the thread waits now.
func (l *load) noteWait() {
	if l.oneWay() {
		l.waits++
	} else {
		l.waits = 0
	}
	l.sent, l.received = 0, 0
}
