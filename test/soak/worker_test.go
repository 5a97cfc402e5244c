package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"exnet/cmd/exn-run/exnrun"
	"exnet/cmd/exn-tun/exntun"
)

// jobEnv has the job of a process that is this test binary again.
const jobEnv = "EXNET_SOAK_JOB"

// Roles of processes.
const (
	roleTun    = "exn-tun"
	roleRun    = "exn-run"
	roleServer = "server"
	roleClient = "client"
)

// job is what a process is to do.
type job struct {
	Role  string
	Node  int // from 1 on
	Nodes int
	Seed  uint64
	Break string // see spoiler
	Redis int    // node with the Redis server; 0: none
	Echo  int    // node with the echo server under exn-run; 0: none
	Curl  string // path; "": none
}

// event is a line of JSON from a process.
type event struct {
	State   string           `json:",omitempty"` // "ready", "paused", "level"
	Tallies map[string]tally `json:",omitempty"` // growth, by kind/peer
	Record  *record          `json:",omitempty"`
	Level   *level           `json:",omitempty"` // with "level"
}

// tally is what a kind of traffic to a peer amounts to.
type tally struct {
	Conns    uint64 `json:",omitempty"` // that went as they should, or sessions without connection
	Direct   uint64 `json:",omitempty"` // of these that were direct sockets with direct bytes
	Aborted  uint64 `json:",omitempty"` // that the client broke off, as it meant to
	Deadline uint64 `json:",omitempty"` // calls that ended by a deadline, as they should
	Messages uint64 `json:",omitempty"` // requests, or datagrams sent
	Answers  uint64 `json:",omitempty"` // answers, or datagrams received
	Bytes    uint64 `json:",omitempty"` // that arrived, and were right
	InMemory uint64 `json:",omitempty"` // bytes that direct sockets carried in memory
}

func (t *tally) add(o tally) {
	t.Conns += o.Conns
	t.Direct += o.Direct
	t.Aborted += o.Aborted
	t.Deadline += o.Deadline
	t.Messages += o.Messages
	t.Answers += o.Answers
	t.Bytes += o.Bytes
	t.InMemory += o.InMemory
}

// reporter writes events.
type reporter struct {
	job job

	mu      sync.Mutex
	out     *json.Encoder
	tallies map[string]tally
}

func newReporter(j job) *reporter {
	return &reporter{job: j, out: json.NewEncoder(os.Stdout), tallies: make(map[string]tally)}
}

func (r *reporter) add(kind string, peer int, t tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := fmt.Sprintf("%s/%d", kind, peer)
	sum := r.tallies[key]
	sum.add(t)
	r.tallies[key] = sum
}

// send writes an event, and what has been tallied before.
func (r *reporter) send(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tallies) > 0 {
		e.Tallies, r.tallies = r.tallies, make(map[string]tally)
	}
	if err := r.out.Encode(e); err != nil { // nobody wants to know any more
		os.Exit(1)
	}
}

const flushTime = 200 * time.Millisecond

func (r *reporter) flush(ctx context.Context) {
	for tick := time.Tick(flushTime); ; {
		select {
		case <-tick:
			r.send(event{})
		case <-ctx.Done():
			return
		}
	}
}

// runJob is the main function of a process that is this binary again.
func runJob(text string) int {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Unsetenv(jobEnv)
	switch j.Role {
	case roleTun:
		return exntun.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	case roleRun:
		return exnrun.Run(os.Args[1:], os.Stdout, os.Stderr)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := newReporter(j)
	go r.flush(ctx)
	var pause, resume func()
	if j.Role == roleServer {
		if err := serve(r); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		pause, resume = func() {}, func() {}
	} else {
		c, err := newClient(r)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		c.start(ctx)
		pause, resume = c.pause, c.gate.open
	}
	r.send(event{State: "ready"})
	obey(os.Stdin, r, pause, resume)
	return 0
}

// obey does what the test process says until it says no more.
func obey(in io.Reader, r *reporter, pause, resume func()) {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		switch lines.Text() {
		case "pause":
			pause()
			r.send(event{State: "paused"})
		case "resume":
			resume()
		case "level":
			runtime.GC()
			debug.FreeOSMemory()
			r.send(event{State: "level", Level: &level{Goroutines: runtime.NumGoroutine()}})
		}
	}
}

// gate holds back traffic.
type gate struct {
	mu     sync.Mutex
	cond   sync.Cond
	closed bool // guarded by mu
	inside int  // guarded by mu
}

func newGate() *gate {
	g := &gate{closed: true}
	g.cond.L = &g.mu
	return g
}

// enter waits until the gate is open; leave has to follow.
func (g *gate) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.closed {
		g.cond.Wait()
	}
	g.inside++
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.cond.Broadcast()
}

// shut closes the gate and waits until nobody is inside.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for g.inside > 0 {
		g.cond.Wait()
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
	g.cond.Broadcast()
}

// closing reports whether those inside should come out.
func (g *gate) closing() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}
