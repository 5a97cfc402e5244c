package paths

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"exnet/directsockets/broker"
	"exnet/internal/tcpbench"
	"exnet/internal/tempdir"
	"exnet/internal/worker"
)

// dsPath is direct sockets between two processes, with TCP over the loopback
// interface as their shadow and a broker of their own in a third.
type dsPath struct {
	loPath
	transport tcpbench.Transport
	tmp       string // has the broker's socket; "": not made
	broker    *worker.Process
}

func newDS(t tcpbench.Transport) func(NodeConfig) Path {
	return func(NodeConfig) Path { return &dsPath{transport: t} }
}

// brokerJob is a broker in a process of its own.
type brokerJob struct {
	Socket string `json:"socket"`
}

// runBroker serves direct sockets of the process's namespace until ctx is done. It
// notes when it can be asked.
func runBroker(ctx context.Context, j brokerJob, note func(any) error) (any, error) {
	s, err := broker.New(broker.Config{Path: j.Socket})
	if err != nil {
		return nil, err
	}
	if err := note(j.Socket); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return struct{}{}, errors.Join(s.Run(ctx), s.Close())
}

// Setup implements Path.
func (p *dsPath) Setup(ctx context.Context) (err error) {
	if err := p.loPath.Setup(ctx); err != nil {
		return err
	}
	if p.tmp, err = tempdir.New("dsbench"); err != nil {
		return err
	}
	job := brokerJob{Socket: filepath.Join(p.tmp, "broker.sock")}
	// It outlives ctx, so that Close can end it in order.
	if p.broker, err = worker.Start(context.WithoutCancel(ctx), p.ns, brokerCommand, job); err != nil {
		return err
	}
	if err := p.broker.Note(&job.Socket); err != nil {
		return fmt.Errorf("broker of direct sockets: %w", err)
	}
	end := tcpbench.End{NS: p.ns, Addr: loopback}
	p.Pair = tcpbench.Between(end, end, p.broker.PID())
	return nil
}

// Measure implements Path.
func (p *dsPath) Measure(ctx context.Context, spec tcpbench.Spec) (tcpbench.Result, error) {
	spec.Transport, spec.Broker = p.transport, filepath.Join(p.tmp, "broker.sock")
	return p.Pair.Measure(ctx, spec)
}

// Close implements Path.
func (p *dsPath) Close() error {
	var errs []error
	if p.broker != nil {
		p.broker.End()
		errs = append(errs, p.broker.Result(new(struct{})))
		p.broker.Stop()
		p.broker = nil
	}
	if p.tmp != "" {
		errs = append(errs, tempdir.Remove(p.tmp))
		p.tmp = ""
	}
	return errors.Join(append(errs, p.loPath.Close())...)
}
