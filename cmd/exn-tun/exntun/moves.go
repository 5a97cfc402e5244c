package exntun

import (
	"context"
	"fmt"
	"time"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/broker/connstats/explain"
	"exnet/internal/display"
	"exnet/node/control"
)

// moves are the connections at two looks.
type moves struct {
	all         []*control.Sockets // as they are now
	before, now map[endKey]*connstats.Connection
	since       time.Duration        // between the two
	still       map[endKey]time.Time // since when an end has not moved, of those that have not
}

// lookAtMoves looks at all connections and compares them with the last look. The first time it
// looks twice.
func (l *looker) lookAtMoves(ctx context.Context) (m moves, err error) {
	if l.ends == nil {
		all, err := l.o.askSockets()
		if err != nil {
			return m, err
		}
		l.ends, l.at = endsOf(all), time.Now()
		select {
		case <-time.After(l.wait):
		case <-ctx.Done():
			return m, errInterrupted
		}
	}
	if m.all, err = l.o.askSockets(); err != nil {
		return m, err
	}
	now := time.Now()
	m.before, m.now, m.since, m.still = l.ends, endsOf(m.all), now.Sub(l.at), make(map[endKey]time.Time)
	for key, c := range m.now {
		was := m.before[key]
		if was == nil || !was.Since.Equal(c.Since) {
			continue
		}
		if out, in := explain.Moved(was, c); out == 0 && in == 0 {
			m.still[key] = l.at
			if at, ok := l.still[key]; ok {
				m.still[key] = at
			}
		}
	}
	l.ends, l.at, l.still = m.now, now, m.still
	return m, nil
}

// endRates returns how many bytes a second an end sends and gets.
func (m moves) endRates(key endKey) (out, in uint64) {
	c, was := m.now[key], m.before[key]
	if c == nil || was == nil || !was.Since.Equal(c.Since) || m.since <= 0 {
		return 0, 0
	}
	sent, received := explain.Moved(was, c)
	return uint64(float64(sent) / m.since.Seconds()), uint64(float64(received) / m.since.Seconds())
}

// rowOf is the row of an end in the table of what moves; "": it is closed.
func (m moves) rowOf(key endKey) string {
	c := m.now[key]
	if c == nil {
		return ""
	}
	other := m.now[key.otherEnd()]
	out, in := m.endRates(key)
	byOther, byThis := explain.Unread(c, other)
	wait := "-"
	if at, ok := m.still[key]; ok {
		whom := "nobody"
		switch {
		case byOther > 0 && other != nil:
			whom = processOf(*other)
		case byOther > 0:
			whom = "the other end"
		case byThis > 0:
			whom = "this program"
		}
		wait = fmt.Sprintf("%v for %s", time.Since(at).Round(100*time.Millisecond), whom)
	}
	direct := "-"
	if !c.DirectSince.IsZero() {
		direct = display.Age(c.DirectSince)
	}
	return fmt.Sprintf("%v|%v|%s|%s|%s|%s|%s|%s|%s|%d", c.Local, c.Remote, display.Bytes(out), display.Bytes(in),
		display.Bytes(byOther), display.Bytes(byThis), wait, display.Age(c.Since), direct, c.Returns)
}

// movesHeader names the columns of rowOf.
const movesHeader = "local|remote|sends/s|gets/s|unread there|here|waits|open|direct for|back"
