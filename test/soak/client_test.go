package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"exnet/directsockets"
)

// client makes the traffic of a node to all others.
type client struct {
	*reporter
	gate  *gate
	spoil *spoiler
	ping  *pinger
	idle  []func() // close connections that are kept
}

// pause ends all traffic.
func (c *client) pause() {
	c.gate.shut()
	for _, f := range c.idle {
		f()
	}
}

func newClient(r *reporter) (*client, error) {
	p, err := newPinger(r.job.Node)
	return &client{reporter: r, gate: newGate(), spoil: newSpoiler(r.job.Break), ping: p}, err
}

// connectTime bounds the wait for a connection: SYNs are sent at 0, 1, 3, 7, 15 s.
const connectTime = time.Minute

var (
	plain  = new(net.Dialer).DialContext
	sooner = &directsockets.Dialer{Config: directsockets.Config{Eager: true}}
)

// longTime is how long a connection lives that may meet a fault, and is reported.
const longTime = 200 * time.Millisecond

// start starts all traffic, which waits for the gate to open.
func (c *client) start(ctx context.Context) {
	j := c.job
	for peer := 1; peer <= j.Nodes; peer++ {
		if peer == j.Node {
			continue
		}
		c.loop("tcp", peer, 400, func(rnd *rand.Rand) { c.any("tcp", peer, plain, portPlain, rnd) })
		c.loop("ds", peer, 200, func(rnd *rand.Rand) { c.any("ds", peer, directsockets.DialContext, portDS, rnd) })
		c.loop("ds-eager", peer, 400, func(rnd *rand.Rand) { c.any("ds-eager", peer, sooner.DialContext, portDS, rnd) })
		c.loop("ds-tcp", peer, 600, func(rnd *rand.Rand) { // one end knows direct sockets only
			dial, port := dialFunc(plain), portDS
			if rnd.IntN(2) == 0 {
				dial, port = directsockets.DialContext, portPlain
			}
			c.any("ds-tcp", peer, dial, port, rnd)
		})
		c.loop("ds-long", peer, 200, func(rnd *rand.Rand) { c.long("ds-long", peer, directsockets.DialContext, portDS, rnd) })
		c.loop("tcp-long", peer, 200, func(rnd *rand.Rand) { c.long("tcp-long", peer, plain, portPlain, rnd) })
		tr := &http.Transport{DialContext: c.countedDial("http", peer), MaxIdleConnsPerHost: 4}
		c.idle = append(c.idle, tr.CloseIdleConnections)
		c.loop("http", peer, 300, c.httpSession(tr, peer))
		c.loop("udp", peer, 200, func(rnd *rand.Rand) { c.udp(peer, rnd) })
		c.loop("ping", peer, 100, func(rnd *rand.Rand) { c.pings(peer, rnd) })
	}
	c.loop("join", 0, 200, c.join)
	c.loop("multicast", 0, 100, c.multicast)
	if j.Redis != 0 && j.Redis != j.Node {
		r := &redisUser{client: c}
		c.loop("redis", j.Redis, 200, r.session)
	}
	if j.Echo != 0 && j.Echo != j.Node {
		c.loop("run", j.Echo, 300, func(rnd *rand.Rand) { c.echo("run", j.Echo, portRun, "echo", rnd) })
	}
	if j.Curl != "" {
		c.loop("curl", j.Node%j.Nodes+1, 3000, func(rnd *rand.Rand) { c.curl(j.Node%j.Nodes+1, rnd) })
	}
}

// loop calls f repeatedly, with pauses of up to think milliseconds, while the gate is open.
func (c *client) loop(kind string, peer, think int, f func(*rand.Rand)) {
	seed := c.job.Seed ^ uint64(c.job.Node)<<32 ^ uint64(peer)<<40
	for _, b := range kind {
		seed = seed*31 + uint64(b)
	}
	rnd := rand.New(rand.NewPCG(seed, uint64(os.Getpid()))) // another one after a restart
	go func() {
		for {
			c.gate.enter()
			f(rnd)
			c.gate.leave()
			time.Sleep(time.Duration(rnd.IntN(think*1000)) * time.Microsecond)
		}
	}()
}

// dial connects, or reports why not.
func (c *client) dial(kind string, peer int, program string, dial dialFunc, port int, rnd *rand.Rand) (timedConn, record, bool) {
	r := record{Kind: kind, Phase: phaseConnect, Client: c.job.Node, Server: peer, Program: program, Start: time.Now()}
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	defer cancel()
	to := netip.AddrPortFrom(addr(peer, rnd.IntN(4) == 0), uint16(port))
	conn, err := dial(ctx, "tcp", to.String())
	if err != nil {
		c.fail(r, err, 0)
		return timedConn{}, r, false
	}
	r.Phase, r.heard = phaseData, new(atomic.Bool)
	return timedConn{conn, r.heard}, r, true
}

func (c *client) fail(r record, err error, missing int64) {
	r.wrong(err, missing)
	c.send(event{Record: &r})
}

// done tallies a connection, and reports it if it went wrong or should have lived through faults.
func (c *client) done(r record, conn net.Conn, t tally, err error, missing int64) {
	var both bool // at the end
	if t.InMemory, both = direct(conn); t.InMemory > 0 && err == nil {
		t.Direct = 1
	}
	if err == nil {
		t.Conns = 1
	}
	c.add(r.Kind, r.Server, t)
	switch {
	case err != nil:
		c.fail(r, err, missing)
	case time.Since(r.Start) > longTime:
		// What is on its way between both is neither.
		if t.InMemory > 0 && !both {
			return
		}
		r.Phase, r.End = phaseDone, time.Now()
		c.send(event{Record: &r})
	}
}

// any makes a connection of one of the kinds that servers know.
func (c *client) any(kind string, peer int, dial dialFunc, port int, rnd *rand.Rand) {
	p, r, ok := c.dial(kind, peer, roleServer, dial, port, rnd)
	if !ok {
		return
	}
	defer p.Close()
	if rnd.IntN(3) == 0 {
		c.requests(p, r, 1+rnd.IntN(50), 0, rnd)
		return
	}
	h := header{Mode: modeStream, Node: byte(c.job.Node), Seed: rnd.Uint64(), Up: logSize(rnd, 4<<20) - 1, Down: logSize(rnd, 4<<20) - 1}
	got, err := c.exchange(p, h, rnd)
	c.done(r, p.Conn, tally{Bytes: uint64(got)}, err, h.Down-got)
}

// exchange sends and receives a stream at the same time.
func (c *client) exchange(p timedConn, h header, rnd *rand.Rand) (got int64, err error) {
	sent := make(chan error, 1)
	own := rand.New(rand.NewPCG(h.Seed, 4))
	go func() {
		_, err := p.Write(h.append(nil))
		if err == nil {
			_, err = send(p, newStream(h.Seed), h.Up, own, c.spoil)
		}
		if err == nil {
			err = p.closeWrite()
		}
		sent <- err
	}()
	got, err = receive(p, newStream(^h.Seed), h.Down, rnd)
	if err != nil {
		p.Close()
	}
	if err2 := <-sent; err == nil {
		err = err2
	}
	return got, err
}

// long is a connection of requests that lives for some seconds.
func (c *client) long(kind string, peer int, dial dialFunc, port int, rnd *rand.Rand) {
	p, r, ok := c.dial(kind, peer, roleServer, dial, port, rnd)
	if !ok {
		return
	}
	defer p.Close()
	c.requests(p, r, 20+rnd.IntN(400), 50, rnd)
}

// requests makes n requests, with pauses of up to think milliseconds, less if the gate closes. Some
// connections end abruptly, and some calls by a deadline.
func (c *client) requests(p timedConn, r record, n, think int, rnd *rand.Rand) {
	h := header{Mode: modeRequests, Node: byte(c.job.Node), Seed: rnd.Uint64(), Abort: rnd.IntN(5) == 0}
	in, out := newStream(^h.Seed), newStream(h.Seed)
	var t tally
	err := func() error {
		if _, err := p.Write(h.append(nil)); err != nil {
			return err
		}
		for number := uint32(1); int(number) <= n && !c.gate.closing(); number++ {
			q := request{Number: number, Len: uint32(logSize(rnd, 100_000)), Answer: uint32(logSize(rnd, 100_000))}
			hurried := rnd.IntN(20) == 0
			if hurried {
				q.Delay = 20
			}
			if _, err := p.Write(append(q.append(nil), out.next(int(q.Len))...)); err != nil {
				return err
			}
			t.Messages++
			if h.Abort && rnd.IntN(n) == 0 {
				break // with the answer on its way
			}
			if hurried {
				first, err := c.deadline(p, in)
				if err != nil {
					return err
				}
				if first > 0 {
					q.Answer--
				} else {
					t.Deadline++
				}
			}
			if err := receiveFull(p, in, int(q.Answer)); err != nil {
				return err
			}
			t.Answers++
			t.Bytes += uint64(q.Answer)
			if _, both := direct(p.Conn); both && r.Direct.IsZero() {
				r.Direct = time.Now()
			}
			if think > 0 {
				time.Sleep(time.Duration(rnd.IntN(think*1000)) * time.Microsecond)
			}
		}
		if h.Abort {
			t.Aborted = 1
			if rnd.IntN(2) == 0 {
				return p.Conn.(interface{ SetLinger(int) error }).SetLinger(0)
			}
			return nil
		}
		if err := p.closeWrite(); err != nil {
			return err
		}
		_, err := receive(p, in, 0, rnd)
		return err
	}()
	c.done(r, p.Conn, t, err, 1)
}

// deadline reads a byte of an answer that takes longer than the deadline, or not. It returns how
// many have come.
func (c *client) deadline(p timedConn, in *stream) (int, error) {
	if err := p.Conn.SetReadDeadline(time.Now().Add(5 * time.Millisecond)); err != nil {
		return 0, err
	}
	var b [1]byte
	n, err := p.Conn.Read(b[:])
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, nil
	}
	if wrong := in.check(b[:n]); wrong != nil {
		return n, wrong
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: where an answer was due", errShort)
	}
	return n, err
}

// echo sends a stream to a server that returns all, and receives it at the same time.
func (c *client) echo(kind string, peer, port int, program string, rnd *rand.Rand) {
	p, r, ok := c.dial(kind, peer, program, directsockets.DialContext, port, rnd)
	if !ok {
		return
	}
	defer p.Close()
	seed, n := rnd.Uint64(), logSize(rnd, 2<<20)
	sent := make(chan error, 1)
	go func() {
		_, err := send(p, newStream(seed), n, rand.New(rand.NewPCG(seed, 5)), c.spoil)
		if err == nil {
			err = p.closeWrite()
		}
		sent <- err
	}()
	got, err := receive(p, newStream(seed), n, rnd)
	if err != nil {
		p.Close()
	}
	if err2 := <-sent; err == nil {
		err = err2
	}
	c.done(r, p.Conn, tally{Bytes: uint64(got)}, err, n-got)
}
