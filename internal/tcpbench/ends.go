package tcpbench

import (
	"time"

	"golang.org/x/sync/errgroup"
)

// do measures what j says. A listening end notes where it listens.
func (j job) do(note func(any) error) (jobResult, error) {
	if err := j.check(); err != nil {
		return jobResult{}, err
	}
	if err := j.bindProcess(); err != nil {
		return jobResult{}, err
	}
	t, err := j.transportOf()
	if err != nil {
		return jobResult{}, err
	}
	start := time.Now() // before the other end can know of this one
	if !j.Listens {
		j.shared = new(shared)
		return j.workOver(start, func() (conn, error) { return t.dial(j) })
	}
	l, addr, err := t.listen(j)
	if err != nil {
		return jobResult{}, err
	}
	defer l.Close()
	if err := note(addr); err != nil {
		return jobResult{}, err
	}
	return j.workOver(start, l.accept)
}

// workOver measures over connections that open makes, from start or later on.
func (j job) workOver(start time.Time, open func() (conn, error)) (jobResult, error) {
	if j.Kind == CRR {
		if j.Listens {
			return j.serveRequests(open)
		}
		return j.timeTransactions(open)
	}
	conns := make([]conn, 0, j.Streams)
	defer func() { closeAll(conns) }()
	for range j.Streams {
		c, err := open()
		if err != nil {
			return jobResult{}, err
		}
		conns = append(conns, c)
		if err := j.prepareConn(c); err != nil {
			return jobResult{}, err
		}
	}
	switch {
	case j.Kind == PingPong && j.Listens:
		return j.onThread(func() (jobResult, error) { return j.echoAll(conns[0]) })
	case j.Kind == PingPong:
		return j.onThread(func() (jobResult, error) { return j.pingAll(conns[0]) })
	case j.isSending():
		return j.sendStream(conns, start)
	}
	return j.receiveStream(conns)
}

// onThread runs f on a thread of its own, bound to the job's CPU.
func (j job) onThread(f func() (jobResult, error)) (jobResult, error) {
	var result jobResult
	err := j.onThreads(1, func(int) (err error) {
		result, err = f()
		return err
	})
	return result, err
}

// onThreads runs n of f, each on a thread of its own, bound to the job's CPU.
func (j job) onThreads(n int, f func(i int) error) error {
	var g errgroup.Group
	for i := range n {
		g.Go(func() error {
			if err := j.takeThread(); err != nil {
				return err
			}
			return f(i)
		})
	}
	return g.Wait()
}

// closeAll closes connections that are of no use any more.
func closeAll(conns []conn) {
	for _, c := range conns {
		c.Close()
	}
}
