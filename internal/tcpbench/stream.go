package tcpbench

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
)

// minReadBuffer is the least size of the receiver's buffer. The size of a
// stream's messages is the sender's; a receiver takes what has come.
const minReadBuffer = 128 << 10

// receive counts what comes over the connections of a stream, from now on.
func receive(j job, conns []io.ReadWriteCloser) (jobResult, error) {
	start := time.Now()
	return eachStream(j, conns, func(c io.ReadWriter, m *meter) error {
		buf := make([]byte, max(j.Size, minReadBuffer))
		*m = newMeter(start, j)
		for !m.done() {
			n, err := c.Read(buf)
			if errors.Is(err, io.EOF) {
				return errors.New("the sender ended early")
			}
			if err != nil {
				return fmt.Errorf("receiving: %w", err)
			}
			m.add(n, time.Now())
		}
		return nil
	})
}

// send sends a stream until the receiver, which counts from start or later on,
// has had enough and closes the connections.
func send(j job, conns []io.ReadWriteCloser, start time.Time) (jobResult, error) {
	earliestEnd := start.Add(j.Warmup + j.Duration)
	return eachStream(j, conns, func(c io.ReadWriter, m *meter) error {
		buf := make([]byte, j.Size)
		*m = newMeter(start, j)
		for {
			n, err := c.Write(buf)
			now := time.Now()
			if err == nil {
				m.add(n, now)
				continue
			}
			if now.Before(earliestEnd) {
				return fmt.Errorf("the receiver ended early: %w", err)
			}
			if !m.done() {
				m.finish(now)
			}
			return nil
		}
	})
}

// eachStream runs one for each connection and joins what they counted.
func eachStream(j job, conns []io.ReadWriteCloser, one func(c io.ReadWriter, m *meter) error) (jobResult, error) {
	meters := make([]meter, len(conns))
	var g errgroup.Group
	for i := range conns {
		g.Go(func() error {
			if err := j.takeThread(); err != nil {
				return err
			}
			return one(conns[i], &meters[i])
		})
	}
	if err := g.Wait(); err != nil {
		return jobResult{}, err
	}
	return sumMeters(meters), nil
}
