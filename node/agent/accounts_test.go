package agent

import (
	"fmt"
	"testing"
	"time"
)

// lines are what was logged, with its values.
type lines []string

func (l *lines) Info(msg string, args ...any) {
	*l = append(*l, fmt.Sprint(append([]any{msg}, args...)...))
}
func (l *lines) Warn(msg string, args ...any) { l.Info(msg, args...) }

// One account's lines are bounded, and cost no other account one. What was dropped is counted.
func TestAccounts(t *testing.T) {
	var got lines
	now := time.Unix(0, 0)
	a := newAccounts(&got)
	a.now = func() time.Time { return now }
	for range 1000 {
		a.For("user 1000").Warn("left out")
	}
	if len(got) != lineBurst {
		t.Errorf("%d lines of one account at once, want %d", len(got), lineBurst)
	}
	got = nil
	a.For("user 1001").Info("here")
	now = now.Add(lineTime)
	a.For("user 1000").Info("left out", "pid", 7)
	a.For("user 1000").Info("left out", "pid", 8)
	want := fmt.Sprint([]string{"here", fmt.Sprint("left out", "pid", 7, "account", "user 1000", "dropped", 1000-lineBurst)})
	if fmt.Sprint(got) != want {
		t.Errorf("logged %q, want %q", got, want)
	}
}

// Very many accounts take no more memory than maxBudgets, and no more lines.
func TestAccountsMany(t *testing.T) {
	var got lines
	now := time.Unix(0, 0)
	a := newAccounts(&got)
	a.now = func() time.Time { return now }
	for i := range 3 * maxBudgets {
		a.For(fmt.Sprint("user ", i)).Warn("left out")
	}
	a.mu.Lock()
	held := len(a.budgets)
	a.mu.Unlock()
	if held > maxBudgets+1 || len(got) > maxBudgets+lineBurst {
		t.Errorf("%d budgets, %d lines", held, len(got))
	}
	now = now.Add(lineBurst * lineTime)
	got = nil
	a.For("user x").Warn("later")
	a.mu.Lock()
	held = len(a.budgets)
	a.mu.Unlock()
	if len(got) != 1 || held > 2 {
		t.Errorf("later there are %d budgets, %d lines", held, len(got))
	}
}
