package exntun

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"syscall"
	"time"

	"exnet/internal/control"

	"golang.org/x/sys/unix"
)

func runCapture(ctx context.Context, p program, args []string) error {
	var file string
	var snapLen int
	o, err := parseNodeOptions("capture", args, nil, func(fs *flag.FlagSet) {
		fs.StringVar(&file, "w", "-", "")
		number(fs, "s", &snapLen, 0, math.MaxInt32)
	})
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(p.stdout, captureHelp)
		return nil
	}
	if err == nil && file == "-" && isTerminal(p.stdout) {
		err = errors.New("a capture is nothing for a terminal: use -w FILE, or a pipe as in exn-tun capture | tcpdump -r -")
	}
	if err != nil {
		return usageError{err}
	}
	nodes, err := o.nodes()
	if err != nil {
		return err
	}
	if len(nodes) > 1 {
		return usageError{fmt.Errorf("there are %d nodes in %s: choose one with --node", len(nodes), o.dir)}
	}
	c, err := control.Dial(o.dir, nodes[0])
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if file == "-" {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer whenUnread(p.stdout, cancel)()
		return ignorePipe(c.Capture(ctx, p.stdout, snapLen))
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(ignorePipe(c.Capture(ctx, f, snapLen)), f.Close())
}

// readerPoll is how often it is looked whether a pipe still has a reader.
const readerPoll = 200 * time.Millisecond

// whenUnread calls f when w is a pipe that nobody reads any more, which a write
// would tell only when there is something to write. The caller calls stop.
func whenUnread(w io.Writer, f func()) (stop func()) {
	file, ok := w.(*os.File)
	if !ok {
		return func() {}
	}
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			p := []unix.PollFd{{Fd: int32(file.Fd())}} // POLLERR needs no asking
			if _, err := unix.Poll(p, 0); err == nil && p[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
				f()
				return
			}
			select {
			case <-time.After(readerPoll):
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

// ignorePipe drops the error that says that the reader has had enough.
func ignorePipe(err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}
