package paths

import (
	"context"
	"errors"
	"time"

	"exnet/internal/tempdir"
)

// exnShmPath is what exnPath is, with a process for each node, as exn-tun up makes them:
// daemons that meet in a directory and share memory.
type exnShmPath struct {
	nodePath
	tmp string // has the fabric's directory; "": not made
}

const (
	linkTime = 30 * time.Second     // how long the nodes may take to find each other
	linkPoll = 5 * time.Millisecond // how often that is looked at
)

func newExnShm(cfg NodeConfig) Path { return &exnShmPath{nodePath: newNodePath(cfg)} }

func (p *exnShmPath) Setup(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.tmp, err = tempdir.New("dsbench"); err != nil {
		return err
	}
	job := daemonJob{Node: p.cfg, Tmp: p.tmp}
	var up [2]nodeUp
	for i := range up {
		job.Index = i
		if err := p.start(ctx, nil, daemonCommand, job, &up[i]); err != nil {
			return err
		}
	}
	if err := p.link(ctx, fabricDir(p.tmp)); err != nil {
		return err
	}
	return p.join(up)
}

// link waits until each node has a link to the other. They are to be asked in dirs.
func (p *nodePath) link(ctx context.Context, dirs ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, linkTime, errors.New("the nodes did not find each other"))
	defer cancel()
	for {
		if ok, err := linked(dirs...); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.up.Done():
			return context.Cause(p.up)
		case <-time.After(linkPoll):
		}
	}
}

// Close ends the nodes and removes their directory, which they leave only if
// they did not end in order.
func (p *exnShmPath) Close() error {
	err := p.nodePath.Close()
	if p.tmp != "" {
		err = errors.Join(err, tempdir.Remove(p.tmp))
	}
	return err
}
