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
	"time"

	"exnet/cmd/dsbench/internal/measure"
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

// runTime is after what time a program counts as hung.
const runTime = 5 * time.Minute

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
	servers []*measure.Program
	lease   map[place]*memory.Segment // of this program

	redisPorts [2]string
	mounted    string // where nbdfuse is
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
	return l.serve(at, append([]string{l.exnTun, "up"}, args...)...)
}

// borrow borrows a lease for this program, once the node there has found one that lends. All of it
// has been written then.
func (l *lab) borrow(ctx context.Context, at place) error {
	ctx, cancel := context.WithTimeout(ctx, measure.StartTime)
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
	return measure.Await(ctx, what, f, l.servers...)
}

// run runs a program to its end, and returns what it prints.
func (l *lab) run(ctx context.Context, at place, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runTime, errors.New("it hangs"))
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.WaitDelay = l.dir, measure.GraceTime
	out, _, err := measure.Output(ctx, cmd, l.spaces[at].Start)
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(argv[0]), err)
	}
	return strings.TrimSpace(out), nil
}

// figure runs a program, and finds the figure that it prints by a pattern (measure.Figure).
func (l *lab) figure(ctx context.Context, at place, pattern string, argv ...string) (float64, error) {
	out, err := l.run(ctx, at, argv...)
	if err != nil {
		return 0, err
	}
	v, err := measure.Figure(pattern, out)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, result.LastLine(out))
	}
	return v, nil
}

// figures runs programs that print a figure each, at the borrower.
func (l *lab) figures(ctx context.Context, pattern string, lines ...[]string) (values []float64, err error) {
	for _, argv := range lines {
		v, err := l.figure(ctx, borrower, pattern, argv...)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// serve starts a program that runs until the lab is closed.
func (l *lab) serve(at place, argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = l.dir
	s, err := measure.Start(filepath.Base(argv[0]), cmd, l.spaces[at].Start)
	if err == nil {
		l.servers = append(l.servers, s)
	}
	return err
}

// close ends all of it, the last first.
func (l *lab) close() (err error) {
	for _, s := range l.lease {
		err = errors.Join(err, s.Close())
	}
	for _, s := range slices.Backward(l.servers) {
		err = errors.Join(err, s.Stop())
	}
	for _, n := range l.spaces {
		if n != nil {
			err = errors.Join(err, n.Close())
		}
	}
	return err
}
