package pager

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"exnet/test/testlab"

	"golang.org/x/sys/unix"
)

// played is a program under a Pager, both of which a test has go on step by step.
type played struct {
	t      *testing.T
	g      *Pager
	in     *os.File // its standard input
	fork   *os.File // another one, descriptor 3
	lines  chan string
	done   chan error
	stderr testlab.Output
}

// play starts the program moves.
func play(t *testing.T, what string, local int64) *played {
	return playProgram(t, local, "moves", what)
}

// playProgram starts a program of testdata.
func playProgram(t *testing.T, local int64, name string, args ...string) *played {
	library := needPaging(t)
	program := compile(t, name)
	socket := filepath.Join(t.TempDir(), "pager")
	const size = 1 << 24
	pl := &played{t: t, lines: make(chan string, 8), done: make(chan error, 1)}
	g, err := New(Config{Local: local, Store: Memory(size), Size: size, Socket: socket,
		Say: func(text string) { t.Error(text) }, Full: func() { t.Error("the store is full") }})
	if err != nil {
		t.Fatal(err)
	}
	pl.g = g
	t.Cleanup(g.closeAll)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+library, "EXNET_PAGER="+socket)
	cmd.Stderr = &pl.stderr
	in, fork := pipe(t, &pl.in), pipe(t, &pl.fork)
	defer in.Close()
	defer fork.Close()
	cmd.Stdin, cmd.ExtraFiles = in, []*os.File{fork}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(stdout); s.Scan(); {
			pl.lines <- s.Text()
		}
		pl.done <- cmd.Wait()
	}()
	return pl
}

// pipe makes a pipe. Its end for writing goes to *out, and is closed when the test ends.
func pipe(t *testing.T, out **os.File) (in *os.File) {
	t.Helper()
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close() })
	*out = to
	return in
}

// until serves the program until what is awaited is so. It gives up when it has served nothing
// for a minute.
func (pl *played) until(what string, so func() bool) {
	pl.t.Helper()
	had := pl.g.counts
	for end := time.Now().Add(time.Minute); !so(); {
		if now := time.Now(); pl.g.counts != had {
			had, end = pl.g.counts, now.Add(time.Minute)
		} else if now.After(end) {
			pl.t.Fatalf("not so: %s\n%s", what, pl.stderr.String())
		}
		if err := pl.g.handleEvents(make([]unix.EpollEvent, 16)); err != nil {
			pl.t.Fatal(err)
		}
	}
}

// line serves the program until it has written a line.
func (pl *played) line() (text string) {
	pl.t.Helper()
	pl.until("a line is written", func() bool {
		select {
		case text = <-pl.lines:
			return true
		default:
			return false
		}
	})
	return text
}

// area serves the program until it has said where its area is.
func (pl *played) area() uint64 {
	pl.t.Helper()
	at, err := strconv.ParseUint(pl.line(), 16, 64)
	if err != nil {
		pl.t.Fatal(err)
	}
	return at
}

// process returns the process that is served.
func (pl *played) process() *process {
	for p := range pl.g.processes {
		return p
	}
	pl.t.Fatal("no process is served")
	return nil
}

// readsLine says whether a thread of the program waits in a read of standard input.
func (pl *played) readsLine() bool {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pl.process().pid)) // the pattern is right
	return slices.ContainsFunc(tasks, func(path string) bool {
		call, _ := os.ReadFile(path) // nothing: the thread has ended
		return bytes.HasPrefix(call, fmt.Appendf(nil, "%d 0x0 ", unix.SYS_READ))
	})
}

// goOn has the program go on. If it is to change its memory then, it is not served until the
// kernel has a change to report. Before that it is served until it reads the line: it may wait
// for a page still, of which the pager has heard, and the kernel does not report that again.
func (pl *played) goOn(changes *process) {
	pl.t.Helper()
	if changes != nil {
		pl.until("the program reads a line", pl.readsLine)
	}
	if _, err := pl.in.Write([]byte{'\n'}); err != nil {
		pl.t.Fatal(err)
	}
	if changes == nil {
		return
	}
	report := []unix.PollFd{{Fd: int32(changes.uffd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(report, 60000)
		if n == 0 || err != nil && !errors.Is(err, unix.EINTR) {
			pl.t.Fatalf("the program changes no memory (%v)", err)
		}
		if n > 0 {
			return
		}
	}
}

// end serves the program until it has succeeded.
func (pl *played) end() {
	pl.t.Helper()
	pl.until("the program has ended", func() bool { return len(pl.g.processes) == 0 })
	err, last := <-pl.done, ""
	for len(pl.lines) > 0 {
		last = <-pl.lines
	}
	if err != nil || last != "ok" || pl.stderr.String() != "" {
		pl.t.Errorf("%v %q\n%s", err, last, pl.stderr.String())
	}
}

const (
	movesSize = 1 << 20 // of the area of moves
	movesTo   = 4 << 20 // below which it moves
)

// stateOf returns the state of a page.
func (p *process) stateOf(address uint64) state {
	if page := p.pages.getPage(address / pageSize); page != nil {
		return page.state
	}
	return untouched
}

// elsewhere serves the program until its area is elsewhere: where that was, and whose.
func (pl *played) elsewhere() (at uint64, p *process) {
	pl.t.Helper()
	at = pl.area()
	p = pl.process()
	pl.until("the area is elsewhere", func() bool { return p.stateOf(at) == remote })
	return at, p
}

// A program moves memory while the pager reads its memory map: that has what the kernel has not
// reported yet. Nothing that is elsewhere is lost.
func TestMoveInScan(t *testing.T) {
	pl := play(t, "move", Smallest)
	at, p := pl.elsewhere()
	pl.goOn(p)
	if pl.g.takeAreas(p, p.readAreas()); p.spans.has(at - movesTo) {
		t.Error("an area is paged whose move has not been reported")
	}
	pl.end()
}

// A move of memory to where other memory is, as far as was reported, waits until that is
// reported as gone. It is first reported that where the memory was is unmapped, which is no
// reason to forget it.
func TestMoveLate(t *testing.T) {
	pl := play(t, "move", Smallest)
	at, p := pl.elsewhere()
	to := at - movesTo
	p.spans.add(to, to+movesSize)
	pl.goOn(p)
	pl.end()
}

// An area of which a part was protected when the pager saw it is one area again for the kernel
// when it is not protected any more: mremap moves it.
func TestMoveOfSplit(t *testing.T) {
	pl := play(t, "split", Smallest)
	pl.elsewhere()
	pl.goOn(nil)
	pl.end()
}

// Memory that was unmapped after the pager has read the memory map, and before it is registered,
// is not paged: the kernel would not report what is done with memory that is there later.
func TestHoleInScan(t *testing.T) {
	pl := play(t, "hole", 2*Smallest)
	pl.area()
	p := pl.process()
	pl.until("the process is paged", func() bool { return p.adopted && len(p.spans.spans) > 0 })
	pl.g.limit = 1 << 20    // so that no page is elsewhere that it touches to say something,
	said := func() string { // for it is not served meanwhile
		select {
		case text := <-pl.lines:
			return text
		case <-time.After(time.Minute):
			t.Fatal("the program says nothing")
		}
		return ""
	}
	pl.goOn(nil)
	at, err := strconv.ParseUint(said(), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	look := p.readAreas()
	pl.goOn(nil)
	said()
	for pl.g.takeAreas(p, look) {
		look = p.readAreas()
	}
	if p.spans.has(at) || !p.spans.has(at+movesSize) {
		t.Errorf("%x is paged; a hole is at %x, and memory behind it", p.spans.spans, at)
	}
	pl.goOn(nil)
	pl.end()
}

// A child of a process that has forked as it came to be paged can have pages leave, too.
func TestForkInAdopt(t *testing.T) {
	pl := play(t, "fork", 64<<20)
	pl.area()
	p := pl.process()
	if err := p.uffd.Register(p.hello.markAddress(), pageSize); err != nil {
		t.Fatal(err)
	}
	pl.goOn(p)
	pl.g.adoptProcess(p)
	pl.until("the child has come", func() bool { return len(pl.g.processes) == 2 })
	for c := range pl.g.processes {
		if c != p && !c.isPaged(c.hello.slots) {
			t.Error("the faults of a child's slots are not reported")
		}
	}
	pl.area()
	pl.goOn(nil)
	pl.line() // the child's ok
	pl.end()
}

// slow is a store from which reading takes until something is so, or some time.
type slow struct {
	Store
	so func() bool
}

func (s slow) ReadAt(p []byte, off int64) (int, error) {
	for end := time.Now().Add(200 * time.Millisecond); !s.so() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return s.Store.ReadAt(p, off)
}

// A thread waits for a page when another one forks. The page comes to the parent after the fork,
// so that the child, which has not got it, gets it from where it was.
func TestForkInFault(t *testing.T) {
	pl := play(t, "touch", Smallest)
	_, p := pl.elsewhere()
	pl.goOn(nil)
	pl.area()
	pl.goOn(p)
	if _, err := pl.fork.Write([]byte{'\n'}); err != nil {
		t.Fatal(err)
	}
	// It forks, unless it waits for a page of its own before that: then the test finds nothing.
	for end := time.Now().Add(time.Second); !p.isChanging() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // it is reported by now, or the test finds nothing
	store := pl.g.store
	pl.g.store = slow{store, func() bool { return !p.isChanging() }}
	pl.until("the child has come", func() bool { return len(pl.g.processes) == 2 })
	pl.g.store = store
	pl.line() // the child's ok
	pl.end()
}

// A thread gives memory back while another forks, and the pager hears of neither for a while:
// the child, whose memory is that of before, has all of it, the parent zeros.
func TestGiveInFork(t *testing.T) {
	t.Setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=1") // fork looks at the other thread's
	pl := play(t, "give", Smallest)
	_, p := pl.elsewhere()
	pl.goOn(nil)
	pl.area()
	pl.g.limit = 1 << 20 // so that nothing leaves that the fork needs
	goFork := func() {
		if _, err := pl.fork.Write([]byte{'\n'}); err != nil {
			t.Fatal(err)
		}
	}
	goFork()
	pl.area()
	pl.until("the agent has nothing to do", func() bool { return len(pl.g.processes) == 1 && p.busy == 0 && !p.isChanging() })
	goFork()
	for end := time.Now().Add(time.Second); !p.isChanging() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if !p.isChanging() {
		t.Log("the fork waits for a page of its own: nothing was tested")
		pl.until("the child has come", func() bool { return len(pl.g.processes) == 2 })
	}
	time.Sleep(20 * time.Millisecond) // the fork is reported by now, and waits to be read
	pl.goOn(nil)
	time.Sleep(20 * time.Millisecond)
	pl.until("the child has come", func() bool { return len(pl.g.processes) == 2 })
	pl.end()
}

// A thread that ends is joined: the kernel writes that into the thread's own memory, and does
// not wait for the pager there.
func TestJoin(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the program is written for amd64")
	}
	t.Setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0") // by which the kernel touches it before
	pl := playProgram(t, Smallest, "joins")
	pl.area()
	pl.goOn(nil)
	pl.end()
}
