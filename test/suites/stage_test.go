package suites

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/test/testlab"
)

// stage is a box in which a scenario runs.
type stage struct {
	*testing.T
	*box
	running []*program
}

func newStage(t *testing.T, m mode) *stage {
	t.Helper()
	b, err := newBox(m, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return &stage{T: t, box: b}
}

// full is argv with the path of a program that is in /usr/sbin: not every user has that in PATH.
func full(argv []string) []string {
	if path := sbin(argv[0]); path != "" {
		return append([]string{path}, argv[1:]...)
	}
	return argv
}

// begin starts a program, which end ends.
func (s *stage) begin(argv ...string) *program {
	s.Helper()
	p, err := s.box.run("", nil, full(argv))
	if err != nil {
		s.Fatal(err)
	}
	s.running = append(s.running, p)
	return p
}

// server starts a server and waits until it listens on a port.
func (s *stage) server(port int, argv ...string) *program {
	s.Helper()
	p := s.begin(argv...)
	s.listens(p, port)
	return p
}

// do runs a program that must succeed, in the mode of the stage, and returns its output.
func (s *stage) do(argv ...string) string {
	s.Helper()
	p, err := s.box.run("", nil, full(argv))
	if err != nil {
		s.Fatal(err)
	}
	return s.ended(p)
}

// prepare runs a program that must succeed as it is, whatever the mode.
func (s *stage) prepare(argv ...string) {
	s.Helper()
	p, err := s.box.enter("", nil, argv)
	if err != nil {
		s.Fatal(err)
	}
	s.ended(p)
}

// ended waits for a program that must succeed and returns its output.
func (s *stage) ended(p *program) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangTime)
	defer cancel()
	if p.wait(ctx) {
		s.Fatalf("%s hangs\n%s", p.name, s.words(p))
	}
	if p.err != nil {
		s.Fatalf("%s: %v\n%s", p.name, p.err, s.words(p))
	}
	return p.out.String()
}

// words is what a program, and the servers, said.
func (s *stage) words(p *program) string {
	text := tail(p.out.String(), 3000)
	for _, server := range s.running {
		if server != p {
			text += "\n" + server.name + ": " + tail(server.out.String(), 2000)
		}
	}
	if log, err := os.ReadFile(s.path("error.log")); err == nil {
		text += "\nerror.log: " + tail(string(log), 3000)
	}
	return text
}

// end ends the servers, last first.
func (s *stage) end() {
	s.Helper()
	for _, p := range slices.Backward(s.running) {
		p.signal(syscall.SIGTERM)
		ctx, cancel := context.WithTimeout(context.Background(), hangTime)
		if p.wait(ctx) {
			s.Errorf("%s does not end\n%s", p.name, s.words(p))
		}
		cancel()
	}
	s.running = nil
}

// listens waits until somebody listens on a TCP port of the box. It does not connect: some serve
// once.
func (s *stage) listens(p *program, port int) {
	s.Helper()
	for end := time.Now().Add(hangTime); ; time.Sleep(2 * time.Millisecond) {
		if testlab.Listens(s.pid, port) {
			return
		}
		select {
		case <-p.done:
			s.Fatalf("%s: %v before it listened\n%s", p.name, p.err, s.words(p))
		default:
		}
		if time.Now().After(end) {
			s.Fatalf("%s does not listen on port %d\n%s", p.name, port, s.words(p))
		}
	}
}

// traffic is the box's; the test fails if it cannot be read.
func (s *stage) traffic() traffic {
	s.Helper()
	sum, err := s.box.traffic()
	if err != nil {
		s.Fatal(err)
	}
	return sum
}

// path is the name of a file of the stage.
func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

// file writes a file of the stage, for all to read, and returns its path.
func (s *stage) file(name, text string) string {
	s.Helper()
	path := s.path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		s.Fatal(err)
	}
	return path
}

// random writes a file of n random bytes, once, and returns its path.
func (s *stage) random(name string, n int) string {
	s.Helper()
	if info, err := os.Stat(s.path(name)); err == nil && info.Size() == int64(n) {
		return s.path(name)
	}
	data := make([]byte, n)
	_, _ = rand.Read(data) // it does not fail
	return s.file(name, string(data))
}

// same fails the test unless two files have the same content.
func (s *stage) same(got, want string) {
	s.Helper()
	a, err := os.ReadFile(got)
	if err != nil {
		s.Fatal(err)
	}
	b, err := os.ReadFile(want)
	if err != nil {
		s.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		s.Errorf("%s has %d bytes that are not the %d of %s", got, len(a), len(b), want)
	}
}

// expand replaces $RUN by the directory of the stage.
func (s *stage) expand(text string) string { return strings.ReplaceAll(text, "$RUN", s.dir) }

// script is the path of a script of testdata, copied to where the box sees it.
func (s *stage) script(name string) string {
	s.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		s.Fatal(err)
	}
	return s.file(name, string(text))
}
