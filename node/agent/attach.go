package agent

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"exnet/node/control"
)

// life is what becomes of a program as to the library for static ones. change alone writes it.
type life uint8

const (
	// other: it is dynamically linked, does not ask, or has not been read.
	other life = iota
	// waits: it is static, asks, and is attached to when its account's turn comes.
	waits
	// attaching: that is under way.
	attaching
	// has: it has the library, or direct sockets of its own.
	has
	// stays: it stays on TCP. process.reason says why.
	stays
)

// event is what changes a life.
type event uint8

const (
	isStatic event = iota // it was read: it is a static program that asks
	isOther               // it was read: it is another
	begins                // its turn has come
	succeeds
	fails   // it may be tried again
	givesUp // that was the last try
)

// lives has the state after each event; a pair that it does not have changes nothing.
var lives = map[life]map[event]life{
	other:     {isStatic: waits},
	waits:     {isOther: other, begins: attaching},
	attaching: {isOther: other, succeeds: has, fails: waits, givesUp: stays},
	has:       {isOther: other},
	stays:     {isOther: other},
}

// applyEvent is the only place that writes a life.
func (p *process) applyEvent(e event) {
	if next, ok := lives[p.life][e]; ok {
		p.life = next
	}
}

// noteSight notes what was seen of it.
func (p *process) noteSight(s sight) {
	if s.image == p.image {
		return
	}
	p.applyEvent(isOther)
	p.image, p.tries, p.next, p.reason = s.image, 0, time.Time{}, ""
	if s.static {
		p.applyEvent(isStatic)
	}
}

// How often a program is attached to, and for how long one waits before the next time. An account
// rests for restTimes as long as its last program took, so that it costs a quarter of a processor.
const (
	maxTries  = 3
	triesTime = 2 * time.Second
	restTimes = 3
)

// Attach puts the library into a process, or says why not. took is the time that the process's
// account is charged for. The library's build is not part of it.
type Attach func(ctx context.Context, pid int) (took time.Duration, err error)

// attacher has programs get the library one at a time, in turns of their accounts.
type attacher struct {
	do   Attach // nil: none does
	done chan attached
	work sync.WaitGroup

	// These belong to the agent's goroutine. busy is the worker's state and no process's, which may
	// end, or run another program, meanwhile.
	busy  bool
	turns map[string]turn // by account

	mu sync.Mutex
	// kept are the programs that stay on TCP, by namespace.
	kept map[uint64][]control.Stay // +checklocks:mu
}

// turn is when an account's last program was attached to, and when the next may be.
type turn struct{ last, next time.Time }

// attached is how it went.
type attached struct {
	pid     int
	image   image
	account string
	took    time.Duration
	err     error
}

func newAttacher(do Attach) *attacher {
	return &attacher{do: do, done: make(chan attached, 1), turns: make(map[string]turn), kept: make(map[uint64][]control.Stay)}
}

// attachNext begins with the next program, unless one is under way.
func (a *agent) attachNext(ctx context.Context, now time.Time) {
	if a.attacher.do == nil || a.attacher.busy {
		return
	}
	best, its := (*process)(nil), 0
	for pid, p := range a.search.known {
		switch {
		case p.life != waits || now.Before(p.next) || now.Before(a.attacher.turns[p.account].next) || a.places[p.inode] == nil:
			continue
		case best == nil || a.attacher.before(p, pid, best, its):
			best, its = p, pid
		}
	}
	if best == nil {
		return
	}
	best.applyEvent(begins)
	a.attacher.busy = true
	a.attacher.turns[best.account] = turn{last: now}
	job := attached{pid: its, image: best.image, account: best.account}
	a.attacher.work.Go(func() {
		job.took, job.err = a.attacher.do(ctx, job.pid)
		a.attacher.done <- job
	})
}

// before reports whether a process's turn is before another's.
func (t *attacher) before(p *process, pid int, q *process, other int) bool {
	return cmp.Or(t.turns[p.account].last.Compare(t.turns[q.account].last), cmp.Compare(pid, other)) < 0
}

// attachEnded notes how it went.
func (a *agent) attachEnded(r attached, now time.Time) {
	a.attacher.busy = false
	for account, t := range a.attacher.turns {
		if now.After(t.next) && !t.next.IsZero() {
			delete(a.attacher.turns, account)
		}
	}
	a.attacher.turns[r.account] = turn{last: now, next: now.Add(restTimes * r.took)}
	p := a.search.known[r.pid]
	if p == nil || p.image != r.image || p.life != attaching {
		return // it has ended
	}
	if r.err == nil {
		p.applyEvent(succeeds)
		return
	}
	p.tries++
	p.reason, p.next = r.err.Error(), now.Add(triesTime)
	if p.tries < maxTries {
		p.applyEvent(fails)
		return
	}
	p.applyEvent(givesUp)
	a.logOf(p.account).Warn("direct sockets: a static program stays on TCP", "pid", r.pid, "reason", p.reason)
}

// noteStays notes the programs that stay on TCP, for status.
func (a *agent) noteStays() {
	kept := make(map[uint64][]control.Stay)
	for pid, p := range a.search.known {
		if p.life == stays && len(kept[p.inode]) < maxStays {
			name := strings.TrimSpace(string(readProc(filepath.Join(a.proc, strconv.Itoa(pid), "comm"))))
			kept[p.inode] = append(kept[p.inode], control.Stay{PID: pid, Name: name, Reason: p.reason})
		}
	}
	for _, list := range kept {
		slices.SortFunc(list, func(x, y control.Stay) int { return cmp.Compare(x.PID, y.PID) })
	}
	a.attacher.mu.Lock()
	defer a.attacher.mu.Unlock()
	a.attacher.kept = kept
}

// maxStays is how many programs of a namespace status shows.
const maxStays = 16

// staysOf returns those of a namespace. It may be called from any goroutine.
func (t *attacher) staysOf(inode uint64) []control.Stay {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kept[inode]
}
