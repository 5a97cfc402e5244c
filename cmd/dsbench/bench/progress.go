package bench

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"exnet/internal/display"
)

// eraseLine moves to the start of the terminal's line and clears it.
const eraseLine = "\r\x1b[K"

// progress is a line on a terminal that says what is going on. On anything else
// it is quiet.
type progress struct {
	w       io.Writer // nil: quiet
	now     func() time.Time
	total   int // measurements
	done    int
	each    time.Duration // what one takes, at first expected
	started time.Time     // of the first
}

func newProgress(w io.Writer, total int, each time.Duration) *progress {
	p := &progress{now: time.Now, total: total, each: each}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.w = w
	}
	return p
}

// showMessage shows a message.
func (p *progress) showMessage(format string, args ...any) {
	if p.w != nil {
		fmt.Fprint(p.w, eraseLine+fmt.Sprintf(format, args...))
	}
}

// showStep shows which measurement begins.
func (p *progress) showStep(format string, args ...any) {
	if p.started.IsZero() {
		p.started = p.now()
	}
	left := time.Duration(p.total-p.done) * p.each
	p.showMessage("[%d of %d] %s; %v left", p.done+1, p.total, fmt.Sprintf(format, args...), display.Duration(left))
}

// stepDone says that it ended.
func (p *progress) stepDone() {
	p.done++
	p.each = p.now().Sub(p.started) / time.Duration(p.done)
}

// clearLine makes room for other text.
func (p *progress) clearLine() {
	if p.w != nil {
		fmt.Fprint(p.w, eraseLine)
	}
}
