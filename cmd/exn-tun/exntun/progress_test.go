package exntun

import (
	"strings"
	"testing"
	"time"
)

// TestProgress: what is left is what was planned, times what the steps so far took longer.
func TestProgress(t *testing.T) {
	var b buffer
	now := time.Unix(1000, 0)
	p := newProgress(&b, []step{{"a", 2 * time.Second}, {"b", 3 * time.Second}, {"c", time.Second}})
	p.now = func() time.Time { return now }
	p.nextStep()
	now = now.Add(5 * time.Second) // 2 were planned; with the second that counts as planned: twice as long
	p.nextStep()
	p.setDone(0.5) // says nothing: this is no terminal
	if left := p.timeLeft(); left != 2500*time.Millisecond*6000/4500 {
		t.Errorf("%v left in the middle of b", left)
	}
	p.lastStep()
	p.clearLine()
	want := "exn-tun demo: [1/3] a; about 6 s left\nexn-tun demo: [2/3] b; about 8 s left\nexn-tun demo: [3/3] c; about 1 s left\n"
	if got := b.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestProgressTerminal: on a terminal it is one line, which is gone in the end.
func TestProgressTerminal(t *testing.T) {
	var b strings.Builder
	p := newProgress(&b, []step{{strings.Repeat("long ", 30), time.Second}, {"b", time.Second}})
	p.terminal = true
	p.nextStep()
	p.setDone(0.5)
	p.nextStep()
	p.clearLine()
	parts := strings.Split(b.String(), "\r\033[K")
	if len(parts) != 5 || parts[4] != "" || strings.Contains(b.String(), "\n") {
		t.Errorf("%q", parts)
	}
	for _, s := range parts {
		if len(s) >= tableWidth {
			t.Errorf("%q is too wide", s)
		}
	}
}
