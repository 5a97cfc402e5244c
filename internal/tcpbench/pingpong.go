package tcpbench

import (
	"errors"
	"fmt"
	"io"
	"time"

	"exnet/internal/stats"
)

// echo returns every message that comes over c until that ends.
func echo(j job, c io.ReadWriter) (jobResult, error) {
	start, cpu := time.Now(), cpuTime(nil)
	buf := make([]byte, j.Size)
	var bytes int64
	for {
		_, err := io.ReadFull(c, buf)
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

// ping sends messages over c and times each until it is back.
func ping(j job, c io.ReadWriter) (jobResult, error) {
	buf := make([]byte, j.Size)
	hist := stats.NewHistogram()
	before := time.Now()
	m := newMeter(before, j)
	for !m.done() {
		if _, err := c.Write(buf); err != nil {
			return jobResult{}, fmt.Errorf("sending: %w", err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			return jobResult{}, fmt.Errorf("receiving: %w", err)
		}
		now := time.Now()
		if m.counting() {
			hist.Record(now.Sub(before))
		}
		m.add(len(buf), now)
		before = now
	}
	result := sumMeters([]meter{m})
	result.RoundTrips = hist
	return result, nil
}
