package pressure

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/test/testlab"
)

// hangTime is when something that should have happened counts as hung.
const hangTime = 5 * time.Minute

// process is a daemon or a worker. Its log has what it prints, too.
type process struct {
	*testlab.Process
	kind string
}

// newProcess starts a process, which is ended when the test ends: by SIGTERM, so that
// nodes leave nothing.
func newProcess(t *testing.T, name string, cmd *exec.Cmd, start func() error) *process {
	t.Helper()
	run, err := testlab.StartProcess(name, cmd, start, func(p *testlab.Process, line string) { fmt.Fprintln(&p.Log, line) })
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Process: run}
	t.Cleanup(func() { p.end(t) })
	return p
}

// text is what it has said so far.
func (p *process) text() string { return p.Log.String() }

// end ends a process that still runs.
func (p *process) end(t *testing.T) {
	_ = p.Signal(unix.SIGTERM) // it may have ended
	if !p.Ended(hangTime) {
		t.Errorf("%s does not end\n%s", p.Name, p.text())
		p.Kill()
	}
}

// tell says a word to a worker.
func (p *process) tell(t *testing.T, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(p.In, format+"\n", args...); err != nil {
		t.Fatalf("%s: %v\n%s", p.Name, err, p.text())
	}
}

// expect waits for the next line, which begins with a word, and returns the words
// after it.
func (p *process) expect(t *testing.T, word string) []string {
	t.Helper()
	return p.expectIn(t, word, hangTime)
}

func (p *process) expectIn(t *testing.T, word string, d time.Duration) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	select {
	case line, ok := <-p.Lines:
		rest, found := strings.CutPrefix(line, word)
		if !ok || !found {
			t.Fatalf("%s: %q instead of %q\n%s", p.Name, line, word, p.text())
		}
		return strings.Fields(rest)
	case <-ctx.Done():
		t.Fatalf("%s: no %q in %v\n%s", p.Name, word, d, p.text())
	}
	return nil
}

// number is the one number that a worker says after a word.
func (p *process) number(t *testing.T, word string) int {
	t.Helper()
	words := p.expect(t, word)
	n, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// says waits until a process has said something somewhere.
func (p *process) says(t *testing.T, text string) {
	t.Helper()
	eventually(t, func() error {
		select {
		case <-p.Done:
			t.Fatalf("%s has ended: %v\n%s", p.Name, p.Err, p.text())
		default:
		}
		if !strings.Contains(p.text(), text) {
			return fmt.Errorf("%s: no %q\n%s", p.Name, text, p.text())
		}
		return nil
	})
}

// round has a worker move bytes on all its connections, which it checks.
func (p *process) round(t *testing.T) {
	t.Helper()
	p.tell(t, "round")
	p.expect(t, "round")
}

// usage is what a process has of the things that can leak.
type usage struct {
	fds, segments int
	rss, pss      int // KiB; pss: pages shared with others by their part
}

func (u usage) String() string {
	return fmt.Sprintf("%d descriptors, %d segments, %d KiB resident, %d its own", u.fds, u.segments, u.rss, u.pss)
}

func (p *process) usage(t *testing.T) (u usage) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", p.PID())
	fds, err := os.ReadDir(dir + "fd")
	if err != nil {
		t.Fatal(err)
	}
	u.fds = len(fds)
	maps, err := os.ReadFile(dir + "maps")
	if err != nil {
		t.Fatal(err)
	}
	u.segments = strings.Count(string(maps), "/memfd:exnet-ds (")
	sums, err := os.ReadFile(dir + "smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(sums)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "kB" {
			n, _ := strconv.Atoi(f[1])
			switch f[0] {
			case "Rss:":
				u.rss = n
			case "Pss:":
				u.pss = n
			}
		}
	}
	return u
}
