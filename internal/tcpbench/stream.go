package tcpbench

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// minReadBuffer is the least size of the receiver's buffer. The size of a
// stream's messages is the sender's; a receiver takes what has come.
const minReadBuffer = 128 << 10

// The clock is read after so many bytes or operations, whichever comes first: at
// 30 ns a message, reading it each time would be measured instead.
const (
	clockBytes = 16 << 10
	clockOps   = 64
)

// receiveStream counts what comes over the connections of a stream, from now on.
func (j job) receiveStream(conns []conn) (jobResult, error) {
	start := time.Now()
	return j.eachStream(conns, func(c io.ReadWriter, m *meter, settling *atomic.Int32) error {
		buf, err := j.messageBuffer(c, max(j.Size, minReadBuffer))
		if err != nil {
			return err
		}
		*m = newMeter(start, j, c, settling)
		bytes, ops := 0, 0
		for !m.done {
			n, err := c.Read(buf)
			if err != nil {
				if errors.Is(err, io.EOF) {
					return errors.New("the sender ended early")
				}
				return fmt.Errorf("receiving: %w", err)
			}
			bytes += n
			if ops++; bytes >= clockBytes || ops == clockOps || !m.counting {
				m.countBytes(bytes, m.sinceBase())
				bytes, ops = 0, 0
			}
		}
		return nil
	})
}

// sendStream sends a stream until the receiver, which counts from start or later on,
// has had enough and closes the connections.
func (j job) sendStream(conns []conn, start time.Time) (jobResult, error) {
	earliestEnd := j.Warmup + j.Duration
	return j.eachStream(conns, func(c io.ReadWriter, m *meter, settling *atomic.Int32) error {
		buf, err := j.messageBuffer(c, j.Size)
		if err != nil {
			return err
		}
		*m = newMeter(start, j, c, settling)
		bytes, ops := 0, 0
		for {
			n, err := c.Write(buf)
			if err != nil {
				now := m.sinceBase()
				if now < earliestEnd {
					return fmt.Errorf("the receiver ended early: %w", err)
				}
				if !m.done {
					m.finish(now)
				}
				return nil
			}
			bytes += n
			if ops++; bytes >= clockBytes || ops == clockOps {
				m.countBytes(bytes, m.sinceBase())
				bytes, ops = 0, 0
			}
		}
	})
}

// eachStream runs one for each connection and joins what they counted.
func (j job) eachStream(conns []conn, one func(c io.ReadWriter, m *meter, settling *atomic.Int32) error) (jobResult, error) {
	meters, settling := make([]meter, len(conns)), settlingOf(len(conns))
	if err := j.onThreads(len(conns), func(i int) error { return one(conns[i], &meters[i], settling) }); err != nil {
		return jobResult{}, err
	}
	return sumMeters(meters), nil
}
