package dsbench

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

// receive accepts the connections of a stream and counts what comes.
func receive(j job, l socket) (jobResult, error) {
	conns := make([]socket, 0, j.Streams)
	defer func() {
		for _, c := range conns {
			c.close()
		}
	}()
	for range j.Streams {
		c, err := l.accept()
		if err != nil {
			return jobResult{}, err
		}
		conns = append(conns, c)
		if err := c.resetOnClose(); err != nil {
			return jobResult{}, err
		}
	}
	start := time.Now()
	return eachStream(j, func(i int, m *meter) error {
		buf := make([]byte, max(j.Size, minReadBuffer))
		*m = newMeter(start, j.Warmup, j.Duration)
		for !m.done() {
			n, err := conns[i].read(buf)
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

// send sends a stream until the receiver has had enough.
func send(j job) (jobResult, error) {
	conns := make([]socket, 0, j.Streams)
	defer func() {
		for _, c := range conns {
			c.close()
		}
	}()
	// The receiver's time begins after its last accept, and so after this.
	start := time.Now()
	earliestEnd := start.Add(j.Warmup + j.Duration)
	for range j.Streams {
		c, err := connect(j.Address, j.Congestion)
		if err != nil {
			return jobResult{}, err
		}
		conns = append(conns, c)
	}
	return eachStream(j, func(i int, m *meter) error {
		buf := make([]byte, j.Size)
		*m = newMeter(start, j.Warmup, j.Duration)
		for {
			n, err := conns[i].write(buf)
			now := time.Now()
			if err == nil {
				m.add(n, now)
				continue
			}
			if !closedByPeer(err) {
				return fmt.Errorf("sending: %w", err)
			}
			if now.Before(earliestEnd) {
				return errors.New("the receiver ended early")
			}
			if !m.done() {
				m.finish(now)
			}
			return nil
		}
	})
}

// eachStream runs one for each of the job's connections, on a thread of its
// own, and joins what they counted.
func eachStream(j job, one func(i int, m *meter) error) (jobResult, error) {
	meters := make([]meter, j.Streams)
	var g errgroup.Group
	for i := range meters {
		g.Go(func() error {
			if err := bindThread(j.CPU); err != nil {
				return err
			}
			return one(i, &meters[i])
		})
	}
	if err := g.Wait(); err != nil {
		return jobResult{}, err
	}
	return sumMeters(meters), nil
}
