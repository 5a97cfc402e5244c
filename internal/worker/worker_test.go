package worker

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"exnet/internal/leaktest"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
)

const testCommand = "test-worker"

// testJob is what a test's worker does.
type testJob struct {
	Do string
}

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == testCommand {
		if err := Run(os.Stdin, os.Stdout, doTestJob); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

func doTestJob(ctx context.Context, j testJob, note func(any) error) (any, error) {
	switch j.Do {
	case "note":
		return 0, note(7)
	case "fail":
		return nil, errors.New("it is broken")
	case "die":
		os.Stderr.WriteString("first\nlast words\n")
		os.Exit(3)
	case "where":
		return os.Readlink("/proc/self/ns/net")
	case "stay":
		if err := note(0); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return "ended in order", nil
	}
	return j.Do, nil
}

func start(t *testing.T, ns *netns.NS, do string) *Process {
	t.Helper()
	netnstest.CheckFDs(t)
	p, err := Start(t.Context(), ns, testCommand, testJob{do})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

func TestResult(t *testing.T) {
	p := start(t, nil, "this")
	var got string
	if err := p.Result(&got); err != nil || got != "this" {
		t.Errorf("result %q, %v", got, err)
	}
	if p.PID() <= 0 || p.PID() == os.Getpid() {
		t.Errorf("process %d", p.PID())
	}
	p.Stop()
	p.Stop() // again
	if p.cmd.ProcessState == nil {
		t.Error("the worker is not gone")
	}
}

func TestNote(t *testing.T) {
	p := start(t, nil, "note")
	var note, result int
	if err := p.Note(&note); err != nil || note != 7 {
		t.Errorf("note %d, %v", note, err)
	}
	if err := p.Result(&result); err != nil {
		t.Error(err)
	}
}

// TestProcessErrors: what is wrong with a worker is said in one line.
func TestProcessErrors(t *testing.T) {
	var number int
	for _, tt := range []struct {
		do   string
		wait func(p *Process) error
		want string
	}{
		{"fail", func(p *Process) error { return p.Result(&number) }, "it is broken"},
		{"die", func(p *Process) error { return p.Result(&number) }, "a worker ended without a result (exit status 3): last words"},
		{"note", func(p *Process) error { return p.Result(&number) }, `a worker sent note "7" and result "" for a result`},
		{"this", func(p *Process) error { return p.Note(&number) }, `a worker sent note "" and result "\"this\"" for a note`},
		{"this", func(p *Process) error { return p.Result(&number) }, `a worker sent "this" for a result: json: `},
		{"stay", func(p *Process) error {
			p.Kill()
			return errors.Join(p.Note(&number), p.Result(&number)) // it may have sent the note
		}, "a worker ended without a result (signal: killed)"},
	} {
		t.Run(tt.do, func(t *testing.T) {
			if err := tt.wait(start(t, nil, tt.do)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

// TestEnd: a worker learns that its result is not wanted any more.
func TestEnd(t *testing.T) {
	p := start(t, nil, "stay")
	var note int
	if err := p.Note(&note); err != nil {
		t.Fatal(err)
	}
	p.End()
	var got string
	if err := p.Result(&got); err != nil || got != "ended in order" {
		t.Errorf("result %q, %v", got, err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, err := Start(ctx, nil, testCommand, testJob{"stay"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	var note int
	if err := p.Note(&note); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := p.Result(&note); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("result: %v", err)
	}
}

func TestRootNamespace(t *testing.T) {
	ns := netnstest.New(t)
	var want, got string
	if err := ns.Do(func() (err error) {
		want, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := start(t, ns, "where").Result(&got); err != nil || got != want {
		t.Errorf("in %s, %v; want %s", got, err, want)
	}
}

// TestRunLines pins the lines.
func TestRunLines(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`{"Do":"this"}`, `{"result":"this"}`},
		{`{"Do":"note"}`, `{"note":7}` + "\n" + `{"result":0}`},
		{`{"Do":"fail"}`, `{"error":"it is broken"}`},
		{`{"Do":"stay"}`, `{"note":0}` + "\n" + `{"result":"ended in order"}`},
	} {
		var out strings.Builder
		if err := Run(strings.NewReader(tt.in), &out, doTestJob); err != nil || out.String() != tt.want+"\n" {
			t.Errorf("%s: %s, %v; want %s", tt.in, out.String(), err, tt.want)
		}
	}
}

func TestRunBadInput(t *testing.T) {
	for _, text := range []string{"", "{", "hello\n", `{"Do":7}` + "\n"} {
		err := Run(strings.NewReader(text), io.Discard, doTestJob)
		if err == nil || !strings.Contains(err.Error(), "reading the job") {
			t.Errorf("job %q: %v", text, err)
		}
	}
}
