package numbered

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// Conn is what a connection has to offer.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// PatientEnv names the variable that makes a program, in Go and in C, patient: the network between
// its ends is away at times. Its value is how many seconds a connection may make no progress, for
// TCP repeats more and more seldom. A dial that finds no route is tried again.
const PatientEnv = "NUMBERED_PATIENT"

// NoteEnv names the variable that says after how many seconds without progress a program in C
// writes a line about it; not set: NoteAfter.
const NoteEnv = "NUMBERED_NOTE"

// NoteAfter is when a connection without progress is worth a line.
const NoteAfter = time.Minute

// Patience is what PatientEnv is set to for a connection that is to end before its program loses
// patience: TCP gives up after 924.6 s.
const Patience = 16 * time.Minute

// patient is the value of PatientEnv; 0: it is not set.
var patient, _ = strconv.Atoi(os.Getenv(PatientEnv))

// stall is how long a connection may make no progress. It only ends what hangs.
var stall = func() time.Duration {
	if patient > 0 {
		return time.Duration(patient) * time.Second
	}
	return 2 * time.Minute
}()

// errStall says that a connection hangs.
var errStall = fmt.Errorf("no progress for %v", stall)

// end is one end of a connection.
type end struct {
	Conn
	plan    Plan
	server  bool
	watch   *time.Timer
	stalled atomic.Bool
}

// carryOut carries the end's part of the plan out, and closes the connection. It returns how many
// bytes arrived and were right.
func (p Plan) carryOut(c Conn, server bool) (right int64, err error) {
	e := &end{Conn: c, plan: p, server: server}
	e.watch = time.AfterFunc(stall, func() {
		e.stalled.Store(true)
		_ = c.Close() // wakes who waits
	})
	defer e.watch.Stop()
	sent := make(chan error, 1)
	go func() { sent <- e.sendStream() }()
	in := e.newChecker()
	err = e.receiveAll(in)
	if err != nil {
		_ = c.Close() // wakes who sends
	}
	if err2 := <-sent; err == nil {
		err = err2
	}
	if err == nil && e.closesFirst() {
		return in.Right(), c.Close()
	}
	if err == nil {
		err = e.readEOF(in)
	}
	if err2 := c.Close(); err == nil {
		err = err2
	}
	return in.Right(), err
}

// closesFirst reports whether this end closes without reading the end of file.
func (e *end) closesFirst() bool {
	switch e.plan.End {
	case EndClient, EndUp:
		return !e.server
	case EndServer, EndDown:
		return e.server
	}
	return false
}

// outStream returns what this end sends, and how much of it; in what it receives.
func (e *end) outStream() (Stream, int64) {
	if e.server {
		return Stream{e.plan.Conn, true}, e.plan.Down
	}
	return Stream{e.plan.Conn, false}, e.plan.Up
}

func (e *end) newChecker() *Checker {
	if e.server {
		return NewChecker(Stream{e.plan.Conn, false}, e.plan.Up)
	}
	return NewChecker(Stream{e.plan.Conn, true}, e.plan.Down)
}

func (e *end) paceOf(client, server Slow) pace {
	if e.server {
		return e.plan.newPace(server)
	}
	return e.plan.newPace(client)
}

func (e *end) sendStream() error {
	s, n := e.outStream()
	pace, at := e.paceOf(SlowClientWrite, SlowServerWrite), int64(0)
	buf := make([]byte, min(n, pace.most))
	if !e.server {
		if _, err := e.Write(e.plan.append(nil)); err != nil {
			return e.brokenError(s, 0, "write", err)
		}
	}
	for at < n {
		b := buf[:min(n-at, pace.nextSize())]
		s.Fill(b, at)
		k, err := e.Write(b)
		if at += int64(k); err != nil {
			return e.brokenError(s, at, "write", err)
		}
		e.watch.Reset(stall)
		pace.pauseAfter()
	}
	if e.plan.End == EndHalf {
		if err := e.CloseWrite(); err != nil {
			return e.brokenError(s, at, "half-close", err)
		}
	}
	return nil
}

// receiveAll reads until all has come.
func (e *end) receiveAll(in *Checker) error {
	pace := e.paceOf(SlowClientRead, SlowServerRead)
	buf := make([]byte, min(in.len, pace.most))
	for !in.Done() {
		n, err := e.Read(buf[:min(pace.nextSize(), in.len)])
		if fault := in.Check(buf[:n]); fault != nil {
			return fault
		}
		switch {
		case err != nil && e.stalled.Load():
			return e.brokenError(in.stream, in.Right(), "read", err)
		case errors.Is(err, io.EOF) && !in.Done() || err != nil && in.Wrong():
			return in.End()
		case err != nil && !errors.Is(err, io.EOF):
			return e.brokenError(in.stream, in.Right(), "read", err)
		}
		e.watch.Reset(stall)
		pace.pauseAfter()
	}
	return nil
}

// readEOF reads the end of file.
func (e *end) readEOF(in *Checker) error {
	var b [window]byte
	for {
		n, err := e.Read(b[:])
		if fault := in.Check(b[:n]); fault != nil {
			return fault
		}
		if errors.Is(err, io.EOF) || err != nil && in.Wrong() {
			return in.End()
		}
		if err != nil {
			return e.brokenError(in.stream, in.Right(), "read the end of file", err)
		}
	}
}

func (e *end) brokenError(s Stream, at int64, what string, err error) error {
	if e.stalled.Load() {
		err = errStall
	}
	return fmt.Errorf("%v, byte %d: %s: %w", s, at, what, err)
}
