package dsbench

import "time"

// serveKernel does a listening end's job over the kernel's sockets. It tells
// say where it listens.
func serveKernel(j job, say func(reply) error) (jobResult, error) {
	l, addr, err := listen(j.Address, j.Streams, j.Congestion)
	if err != nil {
		return jobResult{}, err
	}
	defer l.close()
	if err := say(reply{Listening: &addr}); err != nil {
		return jobResult{}, err
	}
	var conns []conn
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

// connectKernel does a connecting end's job over the kernel's sockets.
func connectKernel(j job) (jobResult, error) {
	start := time.Now()
	var conns []conn
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
