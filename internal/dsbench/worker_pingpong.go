package dsbench

import (
	"errors"
	"fmt"
	"io"
	"time"

	"exnet/internal/stats"
)

// echo returns every message of one connection until that ends.
func echo(j job, l socket) (jobResult, error) {
	return onThread(j, func() (jobResult, error) {
		c, err := l.accept()
		if err != nil {
			return jobResult{}, err
		}
		defer c.close()
		if err := c.noDelay(); err != nil {
			return jobResult{}, err
		}
		start, cpu := time.Now(), cpuTime()
		buf := make([]byte, j.Size)
		var bytes int64
		for {
			err := c.readFull(buf)
			if errors.Is(err, io.EOF) || closedByPeer(err) {
				break
			}
			if err == nil {
				err = c.writeFull(buf)
			}
			if err != nil {
				return jobResult{}, fmt.Errorf("echoing: %w", err)
			}
			bytes += int64(len(buf))
		}
		return jobResult{Bytes: bytes, Seconds: time.Since(start).Seconds(), CPUSeconds: (cpuTime() - cpu).Seconds()}, nil
	})
}

// ping sends messages and times each until it is back.
func ping(j job) (jobResult, error) {
	return onThread(j, func() (jobResult, error) {
		c, err := connect(j.Address, j.Congestion)
		if err != nil {
			return jobResult{}, err
		}
		defer c.close()
		if err := errors.Join(c.noDelay(), c.resetOnClose()); err != nil {
			return jobResult{}, err
		}
		buf := make([]byte, j.Size)
		hist := stats.NewHistogram()
		before := time.Now()
		m := newMeter(before, j.Warmup, j.Duration)
		for !m.done() {
			if err := c.writeFull(buf); err != nil {
				return jobResult{}, fmt.Errorf("sending: %w", err)
			}
			if err := c.readFull(buf); err != nil {
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
	})
}

// onThread runs f on a thread of its own, bound to the job's CPU.
func onThread(j job, f func() (jobResult, error)) (jobResult, error) {
	var result jobResult
	done := make(chan error)
	go func() {
		err := bindThread(j.CPU)
		if err == nil {
			result, err = f()
		}
		done <- err
	}()
	err := <-done
	return result, err
}
