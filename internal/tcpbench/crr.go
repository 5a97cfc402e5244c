package tcpbench

import (
	"errors"
	"fmt"
	"io"
	"time"

	"exnet/internal/stats"
)

// serveRequests answers one request on each connection and closes it, as a server of
// HTTP/1.0 does. So the server's end is the one that lingers in TIME_WAIT, and
// the client does not run out of ports. Every client says that it is done by a
// connection without a request.
func (j job) serveRequests(accept func() (conn, error)) (jobResult, error) {
	start, cpu := time.Now(), cpuTime(nil)
	bytes := make([]int64, j.Streams)
	err := j.onThreads(j.Streams, func(i int) error {
		buf := make([]byte, j.Size)
		for {
			c, err := accept()
			if err != nil {
				return err
			}
			err = j.answerRequest(c, buf)
			c.Close()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			bytes[i] += int64(j.Size)
		}
	})
	result := jobResult{Seconds: time.Since(start).Seconds(), CPUSeconds: (cpuTime(nil) - cpu).Seconds()}
	for _, n := range bytes {
		result.Bytes += n
	}
	return result, err
}

// answerRequest reads a request and writes the response.
func (j job) answerRequest(c conn, buf []byte) error {
	if err := j.prepareConn(c); err != nil {
		return err
	}
	if err := readFull(c, buf); err != nil {
		if errors.Is(err, io.EOF) {
			return err
		}
		return fmt.Errorf("reading a request: %w", err)
	}
	if _, err := c.Write(buf); err != nil {
		return fmt.Errorf("writing a response: %w", err)
	}
	return nil
}

// timeTransactions times transactions: connect, write a request, read the response to
// its end, close.
func (j job) timeTransactions(dial func() (conn, error)) (jobResult, error) {
	start := time.Now()
	meters := make([]meter, j.Streams)
	hists := make([]*stats.Histogram, j.Streams)
	err := j.onThreads(j.Streams, func(i int) error {
		m, hist := &meters[i], stats.NewHistogram()
		*m, hists[i] = newMeter(start, j, nil, nil), hist
		buf := make([]byte, j.Size)
		before := m.sinceBase()
		for !m.done {
			if err := j.requestOnce(dial, buf); err != nil {
				return err
			}
			now := m.sinceBase()
			if m.counting {
				hist.Record(now - before)
			}
			m.countBytes(len(buf), now)
			before = now
		}
		return nil
	})
	for range j.Streams { // even after an error: the server waits for it
		if c, dialErr := dial(); dialErr == nil {
			c.Close()
		}
	}
	if err != nil {
		return jobResult{}, err
	}
	result := sumMeters(meters)
	result.Latency = hists[0]
	for _, h := range hists[1:] {
		result.Latency.Merge(h)
	}
	return result, nil
}

// requestOnce makes one transaction.
func (j job) requestOnce(dial func() (conn, error), buf []byte) error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := j.prepareConn(c); err != nil {
		return err
	}
	if _, err := c.Write(buf); err != nil {
		return fmt.Errorf("writing a request: %w", err)
	}
	if err := readFull(c, buf); err != nil {
		return fmt.Errorf("reading a response: %w", err)
	}
	if _, err := c.Read(buf); !errors.Is(err, io.EOF) {
		return fmt.Errorf("after a response: %w", cmpErr(err))
	}
	return nil
}

// cmpErr is what to say of a connection that should have ended.
func cmpErr(err error) error {
	if err == nil {
		return errors.New("received more than was requested")
	}
	return err
}
