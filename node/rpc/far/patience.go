package far

import "time"

// patienceParts is in how many parts a wait is timed.
const patienceParts = 10

// patience is how long an Engine waits for a node. A process that was stopped has heard nobody
// meanwhile: one part of the time ends then, however long that was.
//
// Its Engine's lock guards it; the function of timer calls endPart.
type patience struct {
	timer *time.Timer // runs out after each part
	part  time.Duration
	left  int // parts
}

// beginWait begins a wait of d.
func (p *patience) beginWait(d time.Duration) {
	p.part, p.left = d/patienceParts, patienceParts
	p.timer.Reset(p.part)
}

// endPart says that a part has ended. It reports whether that was the last one.
func (p *patience) endPart() bool {
	if p.left--; p.left > 0 {
		p.timer.Reset(p.part)
	}
	return p.isOver()
}

// isOver reports whether the wait has ended.
func (p *patience) isOver() bool { return p.left <= 0 }

// end ends it.
func (p *patience) end() {
	p.left = 0
	p.timer.Stop()
}
