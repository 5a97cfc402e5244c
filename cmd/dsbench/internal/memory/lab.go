package memory

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/internal/result"
	"exnet/internal/cbuild"
	"exnet/internal/netns"
	"exnet/memory"
)

//go:embed source/pages.c
var source embed.FS

const (
	pageSize = 4096
	mebibyte = 1 << 20
)

// scaled is a size or a count, less in a test.
func (l *lab) scaled(n int) int { return max(1, n/l.scale) }

// span is a time, less in a test.
func (l *lab) span(d time.Duration) time.Duration { return d / time.Duration(l.scale) }

// errLeftOut says that a part cannot be measured here.
var errLeftOut = errors.New("it cannot be measured here")

// Times after which a program counts as hung, and after which it is killed.
const (
	timeout   = 30 * time.Second
	runTime   = 5 * time.Minute
	graceTime = time.Minute
)

// place is a namespace with a node.
type place int

const (
	lender   place = iota
	borrower       // of the lender's host
	farLender
	farBorrower // another host: a veth pair joins the two
	places
)

// lab is the namespaces, the nodes in them and other servers.
type lab struct {
	options
	exnMem  string
	pages   string // the program
	dir     string
	spaces  [places]*netns.NS
	servers []*server
	lease   map[place]*memory.Segment // of this program

	redisPorts [2]string
	mounted    string // where nbdfuse is
}

// server is a program that runs until the lab ends.
type server struct {
	name  string
	cmd   *exec.Cmd
	out   bytes.Buffer // of both outputs; read once ended is closed
	ended chan struct{}
}

// newLab makes the namespaces, and starts the two nodes of one host.
func newLab(ctx context.Context, o options, dir string) (l *lab, err error) {
	l = &lab{options: o, dir: dir, lease: make(map[place]*memory.Segment)}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.exnTun, l.exnMem, err = o.tools(); err != nil {
		return l, err
	}
	l.pages, err = cbuild.Source{Name: "pages", Files: source, Flags: []string{"-std=gnu11", "-O2"}}.BuildIn(ctx, dir)
	if err != nil {
		return l, err
	}
	for i := range places {
		if l.spaces[i], err = netns.New(); err != nil {
			return l, err
		}
		if _, err := l.run(ctx, i, "ip", "link", "set", "lo", "up"); err != nil {
			return l, err
		}
	}
	fabric := filepath.Join(dir, "fabric")
	if err := l.node(lender, "--dir", fabric, "--addr", "10.2.0.1/24", "--lend", strconv.Itoa(lends)); err != nil {
		return l, err
	}
	if err := l.node(borrower, "--dir", fabric, "--addr", "10.2.0.2/24"); err != nil {
		return l, err
	}
	return l, l.borrow(ctx, borrower)
}

// Sizes, in bytes.
const (
	lends  = 4 << 30
	leased = 64 << 20 // for this program
)

// node starts one.
func (l *lab) node(at place, args ...string) error {
	_, err := l.serve(at, append([]string{l.exnTun, "up"}, args...)...)
	return err
}

// borrow borrows a lease for this program, once the node there has found one that lends. All of it
// has been written then.
func (l *lab) borrow(ctx context.Context, at place) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var s *memory.Segment
	err := l.eventually(ctx, "a lease", func() error {
		return l.spaces[at].Do(func() (err error) {
			s, err = memory.Borrow(ctx, memory.Config{Size: leased})
			return err
		})
	})
	if err != nil {
		return err
	}
	l.lease[at] = s
	_, err = s.WriteAt(bytes.Repeat([]byte{7}, leased), 0)
	return err
}

// eventually calls f until it succeeds.
func (l *lab) eventually(ctx context.Context, what string, f func() error) error {
	for end := time.Now().Add(timeout); ; {
		err := f()
		if err == nil {
			return nil
		}
		if i := slices.IndexFunc(l.servers, (*server).hasEnded); i >= 0 {
			return l.servers[i].failed()
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %v: %w", what, timeout, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// run runs a program to its end, and returns what it prints.
func (l *lab) run(ctx context.Context, at place, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runTime, errors.New("it hangs"))
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, said bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = l.dir, &out, &said, graceTime
	if err := l.spaces[at].Run(cmd); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, result.LastLine(said.String()+out.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

// number runs a program that prints a number.
func (l *lab) number(ctx context.Context, at place, argv ...string) (float64, error) {
	out, err := l.run(ctx, at, argv...)
	if err != nil {
		return 0, err
	}
	return positive(out)
}

// positive reads a number that a program prints.
func positive(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v <= 0 {
		return 0, fmt.Errorf("a program has printed %q, not a number", text)
	}
	return v, nil
}

// serve starts a program that runs until the lab is closed.
func (l *lab) serve(at place, argv ...string) (*server, error) {
	s := &server{name: filepath.Base(argv[0]), cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr, s.cmd.WaitDelay = l.dir, &s.out, &s.out, graceTime
	if err := l.spaces[at].Start(s.cmd); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait() // it ends by a signal, or else says why
		close(s.ended)
	}()
	l.servers = append(l.servers, s)
	return s, nil
}

func (s *server) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

func (s *server) failed() error {
	return fmt.Errorf("%s ends: %s", s.name, result.LastLine(s.out.String()))
}

// close ends all of it, the last first.
func (l *lab) close() (err error) {
	for _, s := range l.lease {
		err = errors.Join(err, s.Close())
	}
	for _, s := range slices.Backward(l.servers) {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-s.ended:
		case <-time.After(graceTime):
			_ = s.cmd.Process.Signal(unix.SIGKILL)
			<-s.ended
			err = errors.Join(err, fmt.Errorf("%s does not end by SIGTERM", s.name))
		}
	}
	for _, n := range l.spaces {
		if n != nil {
			err = errors.Join(err, n.Close())
		}
	}
	return err
}
