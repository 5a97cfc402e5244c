package pressure

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"exnet/directsockets"
	"exnet/test/numbered"
)

// The test's own binary is a worker when this is set: "tcp" has it use package net,
// "go" direct sockets.
const workerEnv = "EXN_PRESSURE_WORKER"

// sockets are what a worker makes its connections with.
type sockets struct {
	dial   func(addr string) (net.Conn, error)
	listen func(addr string) (net.Listener, error)
}

var kinds = map[string]sockets{
	"tcp": {
		func(a string) (net.Conn, error) { return net.Dial("tcp4", a) },
		func(a string) (net.Listener, error) { return net.Listen("tcp4", a) },
	},
	"go": {
		func(a string) (net.Conn, error) { return directsockets.Dial("tcp4", a) },
		func(a string) (net.Listener, error) { return directsockets.Listen("tcp4", a) },
	},
}

// runWorker is testdata/worker.c in Go: the same roles, words and lines.
func runWorker(kind string, args []string) int {
	w := worker{sockets: kinds[kind], addr: net.JoinHostPort(args[1], args[2]), in: bufio.NewScanner(os.Stdin)}
	if len(args) > 3 {
		w.number, _ = strconv.Atoi(args[3])
	}
	roles := map[string]func() error{
		"echo": w.echo, "hold": w.hold, "churn": w.churn, "stream": w.stream, "sink": w.sink, "pour": w.pour,
		"storm": w.storm, "count": w.count,
	}
	if err := roles[args[0]](); err != nil {
		say("error: %v", err)
		return 1
	}
	return 0
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

type worker struct {
	sockets
	addr   string
	number int
	in     *bufio.Scanner
	held   []*exchange
}

// told is the next line of standard input, "end" at its end.
func (w *worker) told() string {
	if !w.in.Scan() {
		return "end"
	}
	return w.in.Text()
}

// exchange is a connection to an echo, and what it has moved.
type exchange struct {
	net.Conn
	seed, at int
	buf      []byte
}

// fill writes what a connection carries from its byte at on.
func fill(b []byte, conn, at int) { numbered.Stream{Conn: uint32(conn)}.Fill(b, int64(at)) }

// check compares b with what the connection carries.
func check(b []byte, conn, at int) error {
	return numbered.Stream{Conn: uint32(conn)}.Compare(b, int64(at))
}

// run moves some messages there and back.
func (e *exchange) run() error {
	for _, n := range []int{64, 1000, 20000, 64} {
		if cap(e.buf) < n {
			e.buf = make([]byte, n)
		}
		b := e.buf[:n]
		fill(b, e.seed, e.at)
		if _, err := e.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(e, b); err != nil {
			return err
		}
		if err := check(b, e.seed, e.at); err != nil {
			return err
		}
		e.at += n
	}
	e.buf = nil // so that the memory measured is that of the connections
	return nil
}

const exchanged = 64 + 1000 + 20000 + 64

func (w *worker) more(n int) (int, error) {
	for i := range n {
		c, err := w.dial(w.addr)
		if err != nil {
			return i, err
		}
		w.held = append(w.held, &exchange{Conn: c, seed: len(w.held)})
	}
	return n, nil
}

func (w *worker) round() error {
	for _, e := range w.held {
		if err := e.run(); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) hold() error {
	if _, err := w.more(w.number); err != nil {
		return err
	}
	if err := w.round(); err != nil {
		return err
	}
	say("held %d", len(w.held))
	for {
		word := w.told()
		n, adds := strings.CutPrefix(word, "add ")
		switch {
		case word == "round":
			if err := w.round(); err != nil {
				return err
			}
			say("round %d", exchanged*len(w.held))
		case adds:
			k, _ := strconv.Atoi(n)
			got, err := w.more(k)
			why := "all"
			if err != nil {
				why = err.Error()
			}
			say("added %d %s", got, why)
		default:
			for _, e := range w.held {
				e.Close()
			}
			w.held = nil
			say("closed")
			if word == "end" {
				return nil
			}
		}
	}
}

func (w *worker) churn() error {
	for i := range w.number {
		c, err := w.dial(w.addr)
		if err != nil {
			return err
		}
		e := exchange{Conn: c, seed: i}
		if err := e.run(); err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	say("churned %d %d", w.number, exchanged*w.number)
	w.told()
	return nil
}

func (w *worker) echo() error {
	l, err := w.listen(w.addr)
	if err != nil {
		return err
	}
	say("listening")
	failing := false
	for {
		c, err := l.Accept()
		if err != nil {
			var no syscall.Errno
			if !errors.As(err, &no) {
				return err
			}
			if !failing {
				say("accept: %v", no)
			}
			failing = true
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if failing {
			say("accepting")
		}
		failing = false
		go func() {
			defer c.Close()
			// Not io.Copy, whose WriterTo would be another way through.
			buf := make([]byte, 20000)
			for {
				n, err := c.Read(buf)
				if n > 0 {
					if _, err := c.Write(buf[:n]); err != nil {
						return
					}
				}
				if err != nil {
					return
				}
			}
		}()
	}
}

// chunk and window are the length of a write, and what is under way at most; beat is the
// length of one.
const chunk, window, beat = 64 << 10, 512 << 10, 1000

func (w *worker) stream() error {
	if _, err := w.more(w.number); err != nil {
		return err
	}
	say("streaming")
	var bytes atomic.Int64
	var ending atomic.Bool
	errs := make(chan error)
	for _, e := range w.held {
		room := make(chan int, window/chunk) // lengths of what is under way
		go func() {
			b := make([]byte, chunk)
			defer close(room)
			for !ending.Load() {
				fill(b, e.seed, e.at)
				room <- len(b)
				if _, err := e.Write(b); err != nil {
					errs <- fmt.Errorf("write: %w", err)
					return
				}
				e.at += len(b)
			}
		}()
		go func() {
			b := make([]byte, chunk)
			at := 0
			for n := range room {
				if _, err := io.ReadFull(e, b[:n]); err != nil {
					errs <- fmt.Errorf("read: %w", err)
					return
				}
				if err := check(b[:n], e.seed, at); err != nil {
					errs <- err
					return
				}
				at += n
				bytes.Add(int64(n))
			}
			errs <- nil
		}()
	}
	go func() {
		for w.told() == "where" {
			say("at %d", bytes.Load())
		}
		ending.Store(true)
	}()
	for range w.held {
		if err := <-errs; err != nil {
			return err
		}
	}
	for _, e := range w.held {
		e.Close()
	}
	say("streamed %d", bytes.Load())
	return nil
}

func (w *worker) sink() error {
	l, err := w.listen(w.addr)
	if err != nil {
		return err
	}
	say("listening")
	c, err := l.Accept()
	if err != nil {
		return err
	}
	words := make(chan string)
	go func() {
		for word := w.told(); ; word = w.told() {
			if word == "enough" {
				_ = c.SetReadDeadline(time.Now())
			}
			words <- word
		}
	}()
	b, at := make([]byte, chunk), 0
	for {
		n, err := io.ReadFull(c, b[:beat])
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err == nil {
			err = check(b[:n], 0, at)
		}
		if err == nil {
			_, err = c.Write([]byte("k"))
		}
		if err != nil {
			return err
		}
		at += n
	}
	<-words
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	say("taken")
	for <-words != "read" {
	}
	for {
		n, err := c.Read(b)
		if wrong := check(b[:n], 0, at); wrong != nil {
			return wrong
		}
		at += n
		if err == io.EOF {
			say("sunk %d", at)
			<-words
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (w *worker) pour() error {
	c, err := w.dial(w.addr)
	if err != nil {
		return err
	}
	b, at := make([]byte, chunk), 0
	for say("connected"); w.told() == "beat"; say("beat") {
		fill(b[:beat], 0, at)
		if _, err := c.Write(b[:beat]); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, b[:1]); err != nil {
			return err
		}
		at += beat
	}
	send := func() error {
		for at < w.number {
			n := min(len(b), w.number-at)
			fill(b[:n], 0, at)
			sent, err := c.Write(b[:n])
			at += sent
			if err != nil {
				return err
			}
			if n == len(b) {
				_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			}
		}
		return nil
	}
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	if err := send(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	say("full %d", at)
	w.told()
	for at < w.number {
		_ = c.SetWriteDeadline(time.Time{})
		n := min(len(b), w.number-at)
		fill(b[:n], 0, at)
		sent, err := c.Write(b[:n])
		at += sent
		if err != nil {
			return err
		}
	}
	if err := c.Close(); err != nil {
		return err
	}
	say("poured %d", at)
	w.told()
	return nil
}
