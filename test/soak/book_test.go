package soak

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// book is what has been reported.
//
// Concurrency: all methods may be called from many goroutines.
type book struct {
	mu       sync.Mutex
	tallies  map[string]tally // guarded by mu; by kind
	progress map[string]int   // guarded by mu; by node/kind/peer: how often there was something new
	records  []record         // guarded by mu
	faults   []*fault         // guarded by mu
	failures []string         // guarded by mu
	failed   int              // guarded by mu; failures, those that are not kept included
}

func (b *book) init() {
	b.tallies, b.progress = make(map[string]tally), make(map[string]int)
}

// maxFailures bounds what is told.
const maxFailures = 40

func (b *book) fail(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failLocked(format, args...)
}

func (b *book) failLocked(format string, args ...any) {
	if b.failed++; b.failed <= maxFailures {
		b.failures = append(b.failures, fmt.Sprintf(format, args...))
	}
}

// event takes an event of a program.
func (b *book) event(p *program, e event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, t := range e.Tallies {
		kind, _, _ := strings.Cut(key, "/")
		sum := b.tallies[kind]
		sum.add(t)
		b.tallies[kind] = sum
		if p.name != roleServer && (t.Conns > 0 || t.Answers > 0) {
			b.progress[fmt.Sprintf("%d/%s", p.node, key)]++
		}
	}
	if e.Record != nil {
		b.records = append(b.records, *e.Record)
	}
}

// ended takes the end of a program that was not asked for.
func (b *book) ended(p *program, why string) {
	b.fail("%s of node %d has ended by itself: %s", p.name, p.node, why)
}

// begin notes a fault, and returns what is to be called when all is as before.
func (b *book) begin(f fault) (over func()) {
	f.Start = time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = append(b.faults, &f)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		f.End = time.Now()
	}
}

// verdict is what the records amount to.
type verdict struct {
	Corrupt     uint64 // connections and datagrams
	Lost        uint64 // bytes that an orderly end left out
	Errors      uint64 // other errors without an excuse
	Excused     map[string]uint64
	Alive       uint64            // direct sockets that outlived the end of a daemon, once for each
	AliveTCP    uint64            // TCP connections
	Datagrams   map[string]uint64 // lost without a fault
	Interrupted uint64            // datagrams lost in faults
	Unreachable uint64            // connections that did not find the neighbour, without a fault
}

// judge judges all records.
func (b *book) judge() verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := verdict{Excused: make(map[string]uint64), Datagrams: make(map[string]uint64)}
	faults := make([]fault, 0, len(b.faults))
	for _, f := range b.faults {
		faults = append(faults, *f)
	}
	for _, r := range b.records {
		if r.Phase == phaseDone {
			for _, f := range faults {
				if f.livedThrough(r) && r.Direct.IsZero() {
					v.AliveTCP++
				} else if f.livedThrough(r) {
					v.Alive++
				}
			}
			continue
		}
		f, excused := judge(r, faults)
		switch {
		case excused && r.Phase == phaseDatagram:
			v.Interrupted++
			continue
		case excused:
			v.Excused[fmt.Sprintf("%s: %s", f.Kind, r.Phase)]++
			continue
		case r.Corrupt:
			v.Corrupt++
		case r.unreachable():
			v.Unreachable++
			continue
		case r.Phase == phaseDatagram:
			v.Datagrams[r.Kind]++
			continue
		case r.Lost > 0:
			v.Lost += r.Lost
		default:
			v.Errors++
		}
		b.failLocked("%s", b.tellLocked(r))
	}
	return v
}

// tellLocked describes a record with the faults around it.
func (b *book) tellLocked(r record) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s from node %d to %d (%s), %s, from %s for %v: %s", r.Kind, r.Client, r.Server, r.Program, r.Phase,
		r.Start.Format("15:04:05.000"), r.End.Sub(r.Start).Round(time.Millisecond), r.Err)
	if r.Silent {
		text.WriteString(" (before a byte had come)")
	}
	if r.By != "" {
		fmt.Fprintf(&text, " (says the %s)", r.By)
	}
	if !r.Direct.IsZero() {
		fmt.Fprintf(&text, " (direct since %s)", r.Direct.Format("15:04:05.000"))
	}
	for _, f := range b.faults {
		if f.hits(r) && f.overlaps(r.Start, r.End, connectGrace) {
			fmt.Fprintf(&text, "\n\t%s: %s %d %s for %v", f.Start.Format("15:04:05.000"), f.Kind, f.Node, f.Program, f.End.Sub(f.Start).Round(time.Millisecond))
		}
	}
	return text.String()
}
