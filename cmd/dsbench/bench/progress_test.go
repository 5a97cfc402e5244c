package bench

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestProgressOnTerminal(t *testing.T) {
	var text strings.Builder
	clock := time.Unix(0, 0)
	p := &progress{w: &text, now: func() time.Time { return clock }, total: 4, each: time.Second}
	show := func(want string) {
		t.Helper()
		if got := text.String(); got != want {
			t.Errorf("shows %q, want %q", got, want)
		}
		text.Reset()
	}
	p.showMessage("setting up %s", "veth")
	show("\r\x1b[Ksetting up veth")
	p.showStep("veth, run %d", 1)
	show("\r\x1b[K[1 of 4] veth, run 1; 4s left")
	clock = clock.Add(3 * time.Second)
	p.stepDone()
	p.showStep("veth, run %d", 2)
	show("\r\x1b[K[2 of 4] veth, run 2; 9s left") // three that took as long as the first
	p.clearLine()
	show("\r\x1b[K")
}

func TestProgressElsewhereIsQuiet(t *testing.T) {
	var text strings.Builder
	for _, p := range []*progress{newProgress(&text, 1, 0), newProgress(tempFile(t), 1, 0)} {
		p.showMessage("hello")
		p.showStep("hello")
		p.stepDone()
		p.clearLine()
		if p.w != nil || p.done != 1 {
			t.Errorf("progress %+v", p)
		}
	}
	if text.Len() > 0 {
		t.Errorf("wrote %q", text.String())
	}
}

func tempFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
