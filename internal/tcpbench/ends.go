package tcpbench

import (
	"io"
	"time"
)

// serve does a listening end's job. It notes where it listens.
func serve(j job, note func(any) error) (jobResult, error) {
	l, addr, err := listen(j.Address, j.Streams, j.Congestion)
	if err != nil {
		return jobResult{}, err
	}
	defer l.Close()
	if err := note(addr); err != nil {
		return jobResult{}, err
	}
	var conns []io.ReadWriteCloser
	defer func() { closeAll(conns) }()
	for range j.Streams {
		c, err := l.accept()
		if err != nil {
			return jobResult{}, err
		}
		conns = append(conns, c)
		if j.Role == roleEcho {
			err = c.noDelay()
		} else {
			err = c.resetOnClose()
		}
		if err != nil {
			return jobResult{}, err
		}
	}
	if j.Role == roleEcho {
		return onThread(j, func() (jobResult, error) { return echo(j, conns[0]) })
	}
	return receive(j, conns)
}

// dial does a connecting end's job.
func dial(j job) (jobResult, error) {
	start := time.Now()
	var conns []io.ReadWriteCloser
	defer func() { closeAll(conns) }()
	for range j.Streams {
		c, err := connect(j.Address, j.Congestion)
		if err != nil {
			return jobResult{}, err
		}
		conns = append(conns, c)
		if j.Role == rolePing {
			if err := c.noDelay(); err != nil {
				return jobResult{}, err
			}
		}
	}
	if j.Role == rolePing {
		return onThread(j, func() (jobResult, error) { return ping(j, conns[0]) })
	}
	return send(j, conns, start)
}

// onThread runs f on a thread of its own, bound to the job's CPU.
func onThread(j job, f func() (jobResult, error)) (jobResult, error) {
	var result jobResult
	done := make(chan error)
	go func() {
		err := j.takeThread()
		if err == nil {
			result, err = f()
		}
		done <- err
	}()
	err := <-done
	return result, err
}
