package pager

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/memory/pager/uffd"
)

// madeUp is a process of a test, whose agent the test plays, with n pages that are here.
func madeUp(t *testing.T, g *Pager, n int) (p *process, agent int) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(ends[0])
		unix.Close(ends[1])
	})
	p = &process{agent: ends[0], uffd: -1, adopted: true, pages: newTable(), ring: newRing(8192)}
	for number := uint64(1); number <= uint64(n); number++ {
		p.noteArrived(number, p.pages.makePage(number), dirty)
	}
	return p, ends[1]
}

// asked says whether an agent has been told to do something.
func asked(agent int) bool {
	n, _ := unix.Read(agent, make([]byte, headLen+wireEntries*entryLen)) // or there is nothing
	return n > 0
}

// Where the largest process has nothing to give, since all that it has is locked or its memory
// is changing, others give.
func TestOthersGive(t *testing.T) {
	for what, hold := range map[string]func(*process){
		"locked": func(p *process) {
			for number, page := p.queue.popOldest(&p.pages); page != nil; number, page = p.queue.popOldest(&p.pages) {
				page.flags |= parked
				p.parked = append(p.parked, number)
			}
		},
		"changing":  func(p *process) { p.late = []move{{}} },
		"unsettled": func(p *process) { p.unsettled = new(process) },
	} {
		g := &Pager{limit: 1024, batch: 64, processes: make(map[*process]bool)}
		large, largeAgent := madeUp(t, g, 2000)
		small, smallAgent := madeUp(t, g, 500)
		hold(large)
		g.processes[large], g.processes[small] = true, true
		g.balancePages()
		if asked(largeAgent) || !asked(smallAgent) || small.busy != opMove {
			t.Errorf("%s: the other gives nothing", what)
		}
	}
}

// Of memory of which a part is locked, or that is of many areas, all leaves that can, by not
// many commands, and what cannot is not tried all the time. The kernel moves a row or refuses it
// whole.
func TestLocked(t *testing.T) {
	const pages, most = 8192, 400
	random := rand.New(rand.NewPCG(13, 14))
	g := &Pager{limit: 1024, batch: 128, processes: make(map[*process]bool)}
	p, agent := madeUp(t, g, pages)
	locked := make(map[uint64]bool)
	for at := uint64(1); at <= pages; {
		n := 1 + random.Uint64N(1000)
		for i := range n {
			locked[at+i] = true
		}
		at += n + random.Uint64N(1000)
	}
	for number := range locked {
		if number > pages {
			delete(locked, number)
		}
	}
	commands, left := 0, 0
	for g.startMove(p) {
		commands++
		if !asked(agent) {
			t.Fatal("no command")
		}
		all := make([]done, len(p.entries))
		for i, e := range p.entries {
			all[i] = done{count: e.count}
			for j := range uint64(e.count) {
				if locked[e.address/pageSize+j] != locked[e.address/pageSize] || locked[e.address/pageSize] {
					all[i] = done{0, uint32(unix.EINVAL)}
				}
			}
			left += int(all[i].count)
		}
		g.noteMoved(p, p.entries, all)
		p.busy = 0
		if p.ring.used > 4096 { // as if they had been saved
			p.ring = newRing(8192)
		}
		if commands > 20*most {
			break
		}
	}
	if left != pages-len(locked) {
		t.Errorf("%d pages have left, of %d that can", left, pages-len(locked))
	}
	if commands > most || len(p.parked) != len(locked) {
		t.Errorf("%d commands, and %d pages wait, of %d", commands, len(p.parked), len(locked))
	}
	p.unparkIn = rescanTicks
	for i := 1; i < rescanTicks; i++ {
		if g.unparkPages(p); len(p.parked) == 0 {
			t.Fatalf("all is tried again after %d ticks", i)
		}
	}
	if g.unparkPages(p); len(p.parked) != 0 || p.queue.empty() {
		t.Errorf("%d pages are never tried again", len(p.parked))
	}
}

// A process whose threads miss pages without end does not keep the pager from others.
func TestTurns(t *testing.T) {
	g := &Pager{limit: 1 << 20, batch: 64, processes: make(map[*process]bool), buffer: make([]byte, pageSize)}
	p, _ := madeUp(t, g, 0)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	p.uffd = uffd.FD(pipe[0])
	p.streams = g.newStreams()
	g.processes[p] = true
	message := make([]byte, 32)
	message[0] = byte(uffd.Fault)
	const all = 2000 // a pipe has room for 2048
	for i := range uint64(all) {
		binary.NativeEndian.PutUint64(message[16:], (i+1000)*pageSize)
		if _, err := unix.Write(pipe[1], message); err != nil {
			t.Fatal(err)
		}
	}
	read := func() int {
		n, err := unix.IoctlGetInt(pipe[0], unix.TIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		return all - n/len(message)
	}
	g.readMessages(p)
	if n := read(); n == 0 || n > mostMessages || g.nextTimeout() != 0 {
		t.Errorf("%d messages in one turn, the next in %d ms", n, g.nextTimeout())
	}
	for range all {
		g.retryFaults()
	}
	if n := read(); n != all || p.more {
		t.Errorf("%d messages in all, and more: %v", n, p.more)
	}
}

// What a program has read before it is paged has no page of its own, and gets one when it writes
// to it, of which no fault tells. It leaves as all does.
func TestReadBefore(t *testing.T) {
	needPaging(t)
	o := runPaged(t, setting{local: Smallest}, compile(t, "reads"))
	o.clean(t)
	if o.stdout != "ok\n" {
		t.Errorf("%q", o.stdout)
	}
}
