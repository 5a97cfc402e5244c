package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"exnet/internal/logger"
	"exnet/internal/steps/stepstest"
)

// TestOwner has nothing but its owner write a life.
func TestOwner(t *testing.T) {
	stepstest.Owner(t, "*.go", "attach.go", `\.life\s*=[^=]`)
}

// TestAttachTurns attaches to programs of two accounts, of which one's always fails: that stays on
// TCP with the reason after some tries, the others get the library, one at a time.
func TestAttachTurns(t *testing.T) {
	const bad = 1
	failed := errors.New("it may not be traced")
	under := make(chan struct{}, 1)
	a := &agent{log: logger.Discard{}, lines: newAccounts(logger.Discard{}), places: map[uint64]*place{7: {}}, search: newSearch(t.TempDir())}
	a.attacher = newAttacher(func(_ context.Context, pid int) (time.Duration, error) {
		select {
		case under <- struct{}{}:
			defer func() { <-under }()
		default:
			t.Error("two at a time")
		}
		if pid == bad {
			return 0, failed
		}
		return time.Second, nil
	})
	defer a.attacher.work.Wait()
	known := a.search.known
	for pid, account := range map[int]string{bad: "a", 2: "b", 3: "b", 4: "a"} {
		known[pid] = &process{inode: 7, account: account}
		known[pid].noteSight(sight{asks: true, static: pid != 4, image: image{inode: uint64(pid)}})
	}
	now := time.Now()
	for range 100 { // each some seconds later
		now = now.Add(10 * time.Second)
		a.attachNext(t.Context(), now)
		a.attachNext(t.Context(), now) // which does nothing while one is under way
		if a.attacher.busy {
			a.attachEnded(<-a.attacher.done, now)
		}
	}
	if p := known[bad]; p.life != stays || p.tries != maxTries || p.reason != failed.Error() {
		t.Errorf("the bad one: %+v", p)
	}
	if known[2].life != has || known[3].life != has || known[4].life != other {
		t.Errorf("the others: %v %v %v", known[2].life, known[3].life, known[4].life)
	}
	a.noteStays()
	if kept := a.attacher.staysOf(7); len(kept) != 1 || kept[0].PID != bad || kept[0].Reason != failed.Error() {
		t.Errorf("kept: %+v", kept)
	}
	// It executes another program, which is dynamically linked.
	known[bad].noteSight(sight{asks: true, image: image{inode: 9}})
	if p := known[bad]; p.life != other || p.reason != "" {
		t.Errorf("the next program: %+v", p)
	}
	// A program that ends, or runs another, while it is attached to.
	known[2].noteSight(sight{asks: true, static: true, image: image{inode: 10}})
	now = now.Add(10 * time.Second)
	a.attachNext(t.Context(), now)
	known[2].noteSight(sight{asks: true, static: true, image: image{inode: 11}})
	a.attachEnded(<-a.attacher.done, now)
	if known[2].life != waits {
		t.Errorf("a program that ran another meanwhile: %v", known[2].life)
	}
	if next := a.attacher.turns["b"].next; !next.Equal(now.Add(restTimes * time.Second)) {
		t.Errorf("its account rests for %v", next.Sub(now))
	}
}
