package tcpbench

import (
	"errors"
	"fmt"
	"io"
	"time"

	"exnet/internal/stats"
)

// echoAll returns every message that comes over c until that ends.
func (j job) echoAll(c io.ReadWriter) (jobResult, error) {
	start, cpu := time.Now(), cpuTime(nil)
	buf, err := j.messageBuffer(c, j.Size)
	if err != nil {
		return jobResult{}, err
	}
	var bytes int64
	for {
		err := readFull(c, buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			_, err = c.Write(buf)
		}
		if err != nil {
			return jobResult{}, fmt.Errorf("echoing: %w", err)
		}
		bytes += int64(len(buf))
	}
	return jobResult{
		Bytes:      bytes,
		Seconds:    time.Since(start).Seconds(),
		CPUSeconds: (cpuTime(nil) - cpu).Seconds(),
	}, nil
}

// pingAll sends messages over c and times each until it is back. With a rest before each, all that
// waits for one sleeps, and its caches forget.
func (j job) pingAll(c io.ReadWriter) (jobResult, error) {
	buf, err := j.messageBuffer(c, j.Size)
	if err != nil {
		return jobResult{}, err
	}
	hist := stats.NewHistogram()
	m := newMeter(time.Now(), j, c, settlingOf(1))
	before := m.sinceBase()
	for !m.done {
		if j.Rest > 0 {
			time.Sleep(j.Rest)
			before = m.sinceBase()
		}
		if _, err := c.Write(buf); err != nil {
			return jobResult{}, fmt.Errorf("sending: %w", err)
		}
		if err := readFull(c, buf); err != nil {
			return jobResult{}, fmt.Errorf("receiving: %w", err)
		}
		now := m.sinceBase()
		if m.counting {
			hist.Record(now - before)
		}
		m.countBytes(len(buf), now)
		before = now
	}
	result := sumMeters([]meter{m})
	result.Latency = hist
	return result, nil
}

// readFull fills b. Unlike io.ReadFull it reads once when all comes at once, and
// nothing is measured but that.
func readFull(c io.Reader, b []byte) error {
	for got := 0; got < len(b); {
		n, err := c.Read(b[got:])
		if got += n; err != nil && got < len(b) {
			if got > 0 && errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}
