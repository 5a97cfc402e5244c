package mesh

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/emp"
)

// lie is a rumor of a node that is not there, with a time in the far future.
func lie(n int, token emp.Token) Rumor {
	return Rumor{Node: fabric.NodeID(n), Token: token, Since: 1 << 62, Endpoint: netip.MustParseAddrPort("192.0.2.77:4791")}
}

const (
	liar   = 9
	honest = 3
)

// A member tells of 60,000 nodes that are not there. Few of them are kept, few are dialed at a
// time, a node that another member tells of has its turn, nobody is looked at when nobody is due,
// and with the member its words are gone.
func TestLiar(t *testing.T) {
	now := time.Unix(1000, 0)
	b := newTestBook(1, 0)
	for _, n := range []int{liar, honest} {
		b.noteConnected(now, rumor(n, 1))
	}
	for n := 100; n < 60000; n += 1000 {
		var all []Rumor
		for i := range 1000 {
			all = append(all, lie(n+i, emp.Token(n+i)))
		}
		b.learnRumors(now, liar, all)
	}
	if len(b.nodes) != maxTold+2 || b.ignored == 0 {
		t.Errorf("%d nodes are known, %d rumors ignored", len(b.nodes), b.ignored)
	}
	now = now.Add(yield)
	due := b.takeDue(now) // and none of them answers
	if len(due) != tellerDials {
		t.Errorf("%d are dialed", len(due))
	}
	if b.nextDue.Sub(now) < time.Minute {
		t.Errorf("it looks again in %v, with no attempt at its end", b.nextDue.Sub(now))
	}
	b.learnRumors(now, honest, []Rumor{rumor(60001, 1), lie(200, 4711)})
	if due = b.takeDue(now.Add(yield)); !slices.ContainsFunc(due, func(t target) bool { return t.node == 60001 }) {
		t.Errorf("the one that is there is not dialed: %v", due)
	}
	b.noteDown(now, liar)
	if len(b.nodes) != 4 || b.nodes[200] == nil || b.nodes[60001] == nil || len(b.tellers) != 1 {
		t.Errorf("with it: %d nodes, %d tellers", len(b.nodes), len(b.tellers))
	}
	for range 100 { // the one that another has reported, too, goes on in that one's turn
		if due = b.takeDue(now.Add(time.Hour)); len(due) > 0 {
			break
		}
	}
	if len(b.met.queue) != 0 || len(due) == 0 {
		t.Errorf("%v, %d wait", due, len(b.met.queue))
	}
}

// attempts runs a book for a time, in which all attempts fail at once, and returns where they went.
// Each 100 ms it calls f.
func attempts(b *book, begin time.Time, d time.Duration, f func(now time.Time)) (all []target) {
	for now := begin; now.Sub(begin) < d; now = now.Add(100 * time.Millisecond) {
		f(now)
		for {
			due := b.takeDue(now)
			for _, t := range due {
				all = append(all, t)
				b.noteDialed(now, t, 0, false)
			}
			if len(due) == 0 {
				break
			}
		}
	}
	return all
}

// What one member tells of is dialed at a bounded rate, whatever it tells, and how often.
func TestLiarsRate(t *testing.T) {
	begin := time.Unix(1000, 0)
	b := newTestBook(1, 0)
	b.noteConnected(begin, rumor(liar, 1))
	token := emp.Token(100)
	all := attempts(b, begin, time.Minute, func(now time.Time) {
		var all []Rumor
		for n := range maxTold {
			token++
			all = append(all, lie(100+n, token))
		}
		b.learnRumors(now, liar, all)
	})
	if most := dialBurst + int(time.Minute/dialPause) + tellerDials; len(all) == 0 || len(all) > most {
		t.Errorf("%d attempts in a minute, %d may be", len(all), most)
	}
	b = newTestBook(1, 0)
	b.noteConnected(begin, rumor(liar, 1))
	all = attempts(b, begin, time.Minute, func(now time.Time) {
		token++
		b.learnRumors(now, liar, []Rumor{lie(100, token)})
	})
	if most := 6 * 12; len(all) > most { // each 10 s anew, and doubling from 250 ms on
		t.Errorf("%d attempts to reach one", len(all))
	}
}

// Since of somebody that was never met is not believed, and words of one member do not take the
// place of another's, nor of what this node has seen itself.
func TestSinceOfOthers(t *testing.T) {
	begin := time.Unix(1000, 0)
	for _, met := range []bool{false, true} {
		b := newTestBook(1, 0)
		b.noteConnected(begin, rumor(liar, 1))
		b.noteConnected(begin, rumor(honest, 1))
		if met {
			b.noteConnected(begin, rumor(50, 1))
			b.noteDown(begin, 50)
		}
		token := emp.Token(100)
		all := attempts(b, begin, time.Minute, func(now time.Time) {
			token++
			b.learnRumors(now, liar, []Rumor{lie(50, token)})
			if !met {
				b.learnRumors(now, honest, []Rumor{rumor(50, 2)})
			}
		})
		there := 0
		for _, t := range all {
			if t.endpoint == rumor(50, 1).Endpoint {
				there++
			}
		}
		if there < len(all)/3 {
			t.Errorf("met: %v: %d of %d attempts go where it is", met, there, len(all))
		}
		if b.noteConnected(begin, rumor(50, 3)); !b.isUp(50) || b.nodes[50].Since != 3 {
			t.Errorf("met: %v: %+v", met, b.nodes[50])
		}
		if n := len(b.met.queue); n != 0 {
			t.Errorf("met: %v: %d wait", met, n)
		}
	}
}

// A peer whose messages take long is read a quarter of the time, and pauses are short enough to
// hear its signs of life.
func TestBudget(t *testing.T) {
	now := time.Unix(1000, 0)
	var b budget
	waited, worked := time.Duration(0), time.Duration(0)
	for range 10000 {
		took := 10 * time.Millisecond
		now = now.Add(took)
		w := b.spendTime(now, took)
		if w > workPause {
			t.Fatalf("a pause of %v", w)
		}
		now = now.Add(w)
		waited, worked = waited+w, worked+took
	}
	if waited < (workShare-1)*worked-2*workBurst {
		t.Errorf("worked %v, waited %v", worked, waited)
	}
	b = budget{}
	for range 1000 {
		now = now.Add(time.Millisecond)
		if w := b.spendTime(now, 100*time.Microsecond); w != 0 {
			t.Fatalf("one that takes little waits %v", w)
		}
	}
	if b.spendTime(now, time.Hour) > workPause || b.due.Sub(now) > workBurst+workPause {
		t.Error("one that took an hour is paid for too long")
	}
}
