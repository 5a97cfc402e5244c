package directsockets_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// crowdSender is a goroutine of a crowd, with what it sends.
type crowdSender struct {
	s    *randomSocket
	each []crowdDatagram
}

type crowdDatagram struct {
	to *randomSocket
	b  []byte
}

// crowdReader is a goroutine of a crowd, with what it has received.
type crowdReader struct {
	s    *randomSocket
	got  [][]byte
	from []string
}

// crowdAhead is how many datagrams of a crowd are on their way to a socket, at most: the kernel
// has room for them.
const crowdAhead = 40

// crowd has goroutines send on some sockets, several on one, while goroutines receive on others,
// which sleep now and then, and something else happens to them.
func (u *randomUDP) crowd() {
	var to []*randomSocket
	for _, i := range u.r.Perm(len(u.all))[:1+u.r.IntN(3)] {
		u.drain(u.all[i])
		to = append(to, u.all[i])
	}
	var from []*randomSocket
	for _, i := range u.r.Perm(len(u.all))[:1+u.r.IntN(2)] {
		from = append(from, u.all[i])
	}
	for range 1 + u.r.IntN(8) {
		comes := map[*randomSocket]int{}
		var senders []*crowdSender
		for range 2 + u.r.IntN(4) {
			w := &crowdSender{s: from[u.r.IntN(len(from))]}
			for range 1 + u.r.IntN(20) {
				if _, r := u.target(w.s); slices.Contains(to, r) {
					u.makeFlow(w.s, r)
					comes[r]++
					w.each = append(w.each, crowdDatagram{r, w.s.next(u.r)})
				}
			}
			senders = append(senders, w)
		}
		u.burst(senders, to, comes)
	}
}

// burst has a crowd send and receive.
func (u *randomUDP) burst(senders []*crowdSender, to []*randomSocket, comes map[*randomSocket]int) {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var readers []*crowdReader
	room := map[*randomSocket]chan struct{}{}
	for _, s := range to {
		n := comes[s]
		ahead := make(chan struct{}, crowdAhead)
		room[s] = ahead
		tickets := new(atomic.Int32)
		_ = s.conn.SetReadDeadline(time.Now().Add(testWait))
		for range s.many {
			r := &crowdReader{s: s}
			readers = append(readers, r)
			wg.Go(func() {
				for int(tickets.Add(1)) <= n {
					if err := r.read(); err != nil {
						cancel(err)
						return
					}
					<-ahead
				}
			})
		}
	}
	u.note("a crowd: %v send, %v receive", senders, readers)
	time.Sleep(time.Duration(u.r.IntN(2000)) * time.Microsecond) // they sleep
	for _, w := range senders {
		wg.Go(func() {
			for _, d := range w.each {
				select {
				case room[d.to] <- struct{}{}:
				case <-ctx.Done():
					return
				}
				if err := w.s.write(d.to.at, d.b); err != nil {
					cancel(fmt.Errorf("send: %w", err))
				}
			}
		})
	}
	u.disturb()
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		u.fatalf("%v", err)
	}
	if err := checkCrowd(senders, readers); err != nil {
		u.fatalf("%v", err)
	}
}

// makeFlow sends from a socket to another one, which sleeps in between, as long as that takes
// for a flow to begin, if none of the two was used for that before.
func (u *randomUDP) makeFlow(s, to *randomSocket) {
	if s.flows[to] {
		return
	}
	s.flows[to] = true
	for range 8 {
		b := s.next(u.r)
		if err := s.write(to.at, b); err != nil {
			u.fatalf("send: %v", err)
		}
		to.left[s] = append(to.left[s], b)
		u.drain(to)
		time.Sleep(2 * time.Millisecond) // SPEC 10.3: nothing is on its way
	}
}

func (w *crowdSender) String() string { return fmt.Sprintf("%d (%d)", w.s.id, len(w.each)) }
func (r *crowdReader) String() string { return fmt.Sprint(r.s.id) }

func (r *crowdReader) read() error {
	buf := make([]byte, 1000)
	n, from, err := r.s.conn.ReadFrom(buf)
	if err != nil {
		return fmt.Errorf("socket %d: %w, after %d datagrams", r.s.id, err, len(r.got))
	}
	r.got, r.from = append(r.got, buf[:n]), append(r.from, from.String())
	return nil
}

// checkCrowd has each datagram come once, to its receiver and from its sender. What one
// goroutine has sent and another has received is in order.
func checkCrowd(senders []*crowdSender, readers []*crowdReader) error {
	type place struct {
		w *crowdSender
		i int
	}
	all := map[string]place{}
	for _, w := range senders {
		for i, d := range w.each {
			all[string(d.b)] = place{w, i}
		}
	}
	for _, r := range readers {
		last := map[*crowdSender]int{}
		for i, b := range r.got {
			at, ok := all[string(b)]
			what := fmt.Sprintf("socket %d: %x from %s", r.s.id, b[:min(8, len(b))], r.from[i])
			switch {
			case !ok:
				return fmt.Errorf("%s comes twice, or was never sent", what)
			case at.w.each[at.i].to != r.s || at.w.s.at.String() != r.from[i]:
				return fmt.Errorf("%s was sent by %d to %d", what, at.w.s.id, at.w.each[at.i].to.id)
			case at.i+1 <= last[at.w]:
				return fmt.Errorf("%s, datagram %d of a goroutine, comes after %d", what, at.i, last[at.w]-1)
			}
			last[at.w] = at.i + 1
			delete(all, string(b))
		}
	}
	if len(all) > 0 {
		return fmt.Errorf("%d datagrams have not come", len(all))
	}
	return nil
}
