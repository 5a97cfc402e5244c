package numbered

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// other is a stream that is not the connection's.
var other = Stream{Conn: 9, Down: true}

// plant is a fault that a man in the middle plants into a stream: at byte at it turns the stream's
// next bytes into others.
type plant struct {
	name string
	at   int64
	make func(b []byte) []byte
	want string // behind "connection N up, "; at most so
}

// plantLen is the least length of a stream that has plants. Words that are near each other differ
// in their first two bytes and the last one: others show no fault.
const plantLen = 8000

var plants = []plant{
	{"two words swapped", 4096, func(b []byte) []byte { return slices.Concat(b[8:16], b[:8], b[16:]) },
		"byte 4096: out of order: byte 4104 came first"},
	{"two words far apart swapped", 2048, func(b []byte) []byte { return slices.Concat(b[2048:2056], b[8:2048], b[:8], b[2056:]) },
		"byte 2049: out of order: byte 4097 came first"},
	{"a block before another", 4096, func(b []byte) []byte { return slices.Concat(b[64:128], b[:64], b[128:]) },
		"byte 4096: out of order: byte 4160 came first"},
	{"8 bytes dropped", 4096, func(b []byte) []byte { return b[8:] }, "byte 4096: 8 bytes are missing: byte 4104 came"},
	{"1 byte dropped", 4096, func(b []byte) []byte { return b[1:] }, "byte 4096: 1 bytes are missing: byte 4097 came"},
	{"3000 bytes dropped", 4101, func(b []byte) []byte { return b[3000:] }, "byte 4103: 3000 bytes are missing: byte 7103 came"},
	{"16 bytes repeated", 4096, func(b []byte) []byte { return slices.Concat(b[:16], b) }, "byte 4112: repeated: byte 4096 came again"},
	{"bytes of another connection", 4096, func(b []byte) []byte { return append(filled(other, 640, 100), b[100:]...) },
		"byte 4096: foreign: byte 640 of connection 9 down came"},
	{"the same, from within a word", 4099, func(b []byte) []byte { return append(filled(other, 645, 100), b...) },
		"byte 4100: foreign: byte 646 of connection 9 down came"},
	{"one word of another connection", 4096, func(b []byte) []byte { return append(filled(other, 640, 8), b...) },
		"byte 4096: foreign: byte 640 of connection 9 down came"},
	{"a bit", 4098, func(b []byte) []byte { return append([]byte{b[0] ^ 4}, b[1:]...) }, "byte 4098: damaged: "},
	{"zeros", 4096, func(b []byte) []byte { return append(make([]byte, 64), b[64:]...) }, "byte 4097: damaged: 00 00 00"},
}

func filled(s Stream, at int64, n int) []byte {
	b := make([]byte, n)
	s.Fill(b, at)
	return b
}

// Whatever differs is named, however the bytes are cut.
func TestNamed(t *testing.T) {
	for _, p := range plants {
		for _, cut := range []int{1, 3, 8, 100, 5000, plantLen} {
			s := Stream{Conn: 77}
			all := filled(s, 0, plantLen)
			all = append(all[:p.at:p.at], p.make(all[p.at:])...)
			c := NewChecker(s, plantLen)
			var err error
			for b := range slices.Chunk(all, cut) {
				if err = c.Check(b); err != nil {
					break
				}
			}
			if err == nil {
				err = c.End()
			}
			var f *Fault
			if !errors.As(err, &f) || !strings.HasPrefix(err.Error(), "connection 77 up, "+p.want) {
				t.Errorf("%s, in pieces of %d bytes: %v, want %s", p.name, cut, err, p.want)
			}
		}
	}
}

// Bytes that are missing at the end, and too many of them.
func TestNamedEnd(t *testing.T) {
	s := Stream{Conn: 3, Down: true}
	c := NewChecker(s, 100)
	if err := c.Check(filled(s, 0, 99)); err != nil {
		t.Fatal(err)
	}
	if err := c.End(); err == nil || err.Error() != "connection 3 down, byte 99: an end of file before 100 bytes" {
		t.Error(err)
	}
	c = NewChecker(s, 100)
	if err := c.Check(filled(s, 0, 101)); err == nil || !strings.HasPrefix(err.Error(), "connection 3 down, byte 100: more than 100 bytes came: ") {
		t.Error(err)
	}
}

// A man in the middle plants each fault into connections between two programs, in Go and in C: the
// receiver names it. Without him nothing is wrong.
func TestPlanted(t *testing.T) {
	dir := t.TempDir()
	run := func(argv ...string) {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	run("go", "build", "-o", filepath.Join(dir, "go"), "./program")
	programs := []string{"go"}
	if _, err := exec.LookPath("gcc"); err == nil {
		run(append([]string{"gcc", "-fsanitize=address,undefined"}, append(CFlags, "-o", filepath.Join(dir, "c"), "c/numbered.c")...)...)
		programs = append(programs, "c")
	}
	for _, server := range programs {
		for _, client := range programs {
			t.Run(client+" to "+server, func(t *testing.T) {
				t.Parallel()
				s := startServer(t, filepath.Join(dir, server))
				m := newMiddle(t, s.address)
				seed := 0
				dial := func() (faults []string) {
					seed++
					out, err := exec.Command(filepath.Join(dir, client), "dial", m.l.Addr().String(), "1", "0", "0", fmt.Sprint(seed), "77").Output()
					if err != nil {
						t.Fatal(err)
					}
					for line := range strings.Lines(string(out)) {
						if fault := ParseFault(strings.TrimSpace(line)); fault != "" {
							faults = append(faults, fault)
						}
					}
					return faults
				}
				for _, down := range []bool{false, true} {
					m.down.Store(down)
					for _, p := range plants {
						planted := false
						for m.plant.Store(&p); !planted; { // until a connection is long enough
							faults, server := dial(), s.sum(t, 1)
							planted = m.plant.Load() == nil
							if !down {
								faults = server
							} else if !planted {
								faults = append(faults, server...)
							}
							want := fmt.Sprintf("%v, %s", Stream{77, down}, p.want)
							if planted && (len(faults) != 1 || !strings.HasPrefix(faults[0], want)) {
								t.Errorf("%s: %q, want %s", p.name, faults, want)
							} else if !planted && len(faults) > 0 {
								t.Errorf("without a fault: %q", faults)
							}
						}
					}
				}
			})
		}
	}
}

// program is a server.
type program struct {
	address string
	in      io.Writer
	lines   *bufio.Scanner
}

func startServer(t *testing.T, path string) *program {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &program{address: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "serve", p.address)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	p.in, p.lines = in, bufio.NewScanner(out)
	if !p.lines.Scan() || p.lines.Text() != "listening" {
		t.Fatalf("the server says %q", p.lines.Text())
	}
	return p
}

// sum asks for the sum of so many connections, and returns the faults.
func (p *program) sum(t *testing.T, conns int) (faults []string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, conns); err != nil {
		t.Fatal(err)
	}
	for p.lines.Scan() {
		if fault := ParseFault(p.lines.Text()); fault != "" {
			faults = append(faults, fault)
		}
		if s, ok := ParseSum(p.lines.Text()); ok {
			if s.Conns != conns || s.Wrong != len(faults) {
				t.Errorf("%+v of %d connections, %d faults", s, conns, len(faults))
			}
			return faults
		}
	}
	t.Fatal("the server has ended")
	return nil
}

// middle passes the bytes of a connection on.
type middle struct {
	l     net.Listener
	to    string
	down  atomic.Bool
	plant atomic.Pointer[plant] // nil once it is planted
}

func newMiddle(t *testing.T, to string) *middle {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &middle{l: l, to: to}
	done := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				done <- nil
				return
			}
			if err := m.pass(c.(*net.TCPConn)); err != nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return m
}

// pass passes on one connection, the direction that a fault may be planted in as a whole.
func (m *middle) pass(client *net.TCPConn) error {
	defer client.Close()
	c, err := net.Dial("tcp4", m.to)
	if err != nil {
		return err
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	var first [planLen]byte
	var p Plan
	if _, err := io.ReadFull(client, first[:]); err != nil {
		return err
	}
	if err := p.parse(first[:]); err != nil {
		return err
	}
	if _, err := server.Write(first[:]); err != nil {
		return err
	}
	done := make(chan struct{})
	from, to, n := client, server, p.Up
	if m.down.Load() {
		from, to, n = server, client, p.Down
	}
	go func() {
		defer close(done)
		_, _ = io.Copy(from, to) // the receiver may end first
		_ = from.CloseWrite()
	}()
	if plant := m.plant.Load(); plant != nil && n >= plantLen {
		all := make([]byte, n)
		if _, err := io.ReadFull(from, all); err != nil {
			return err
		}
		b := bytes.Clone(all[plant.at:])
		all = append(all[:plant.at], plant.make(b)...)
		m.plant.Store(nil)
		_, _ = to.Write(all) // the receiver may end in the middle
	}
	_, _ = io.Copy(to, from)
	_ = to.CloseWrite()
	<-done
	return nil
}
