package exntun

import (
	"fmt"
	"io"
	"time"
)

// step is a part of the demonstration.
type step struct {
	text  string
	takes time.Duration // on an idle machine; the part that is under way counts by its pieces
}

// progress says on standard error which part of the demonstration is under way, and how long the
// rest still takes: what is planned, times what the parts so far took longer than planned. On a
// terminal that is one line, which is replaced.
type progress struct {
	w        io.Writer
	terminal bool
	now      func() time.Time

	steps []step
	at    int // the step under way; -1: none yet
	began time.Time
	part  float64 // of the step under way: 0 to 1
}

func newProgress(w io.Writer, steps []step) *progress {
	return &progress{w: w, terminal: isTerminal(w), now: time.Now, steps: steps, at: -1}
}

// nextStep begins the next step.
func (p *progress) nextStep() {
	if p.began.IsZero() {
		p.began = p.now()
	}
	p.at++
	p.part = 0
	p.showProgress()
}

// lastStep begins the last step, wherever it was.
func (p *progress) lastStep() {
	p.at = len(p.steps) - 2
	p.nextStep()
}

// setDone says which part of the step under way is done.
func (p *progress) setDone(part float64) {
	p.part = part
	if p.terminal {
		p.showProgress()
	}
}

// timeLeft returns how long the rest takes.
func (p *progress) timeLeft() time.Duration {
	var past, rest time.Duration
	for i, s := range p.steps {
		switch {
		case i < p.at:
			past += s.takes
		case i == p.at:
			past += time.Duration(p.part * float64(s.takes))
			rest += time.Duration((1 - p.part) * float64(s.takes))
		default:
			rest += s.takes
		}
	}
	took := p.now().Sub(p.began)
	// What is planned counts as a second that went as planned: a slow first moment says little.
	const known = time.Second
	return time.Duration(float64(rest) * float64(took+known) / float64(past+known))
}

func (p *progress) showProgress() {
	seconds := int((p.timeLeft() + time.Second - 1) / time.Second)
	text := fmt.Sprintf("exn-tun demo: [%d/%d] %s; about %d s left", p.at+1, len(p.steps), p.steps[p.at].text, seconds)
	if p.terminal {
		fmt.Fprintf(p.w, "\r\033[K%.*s", tableWidth-1, text)
	} else {
		fmt.Fprintln(p.w, text)
	}
}

// clearLine removes the line from a terminal.
func (p *progress) clearLine() {
	if p.terminal && p.at >= 0 {
		fmt.Fprint(p.w, "\r\033[K")
	}
}
