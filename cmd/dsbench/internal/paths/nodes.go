package paths

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"exnet/internal/ctxend"
	"exnet/internal/netns"
	"exnet/internal/tcpbench"
	"exnet/internal/tempdir"
	"exnet/internal/worker"
)

// nodePath is what the paths over exn0 have in common: the kernel's TCP in two
// namespaces, and the processes that hold their nodes.
type nodePath struct {
	*tcpbench.Pair
	cfg        NodeConfig
	mtu        int
	namespaces [2]*netns.NS
	tmp        string // directory for sockets; "": not made

	nodes []*nodeProcess
	up    context.Context // done when the first of them has ended, with the cause
	down  context.CancelCauseFunc
}

// nodeProcess is a worker that holds nodes.
type nodeProcess struct {
	*worker.Process
	ended  chan struct{} // closed when it has ended
	endErr error         // valid then; nil: in order
}

// nodeUp says where a node is. It lasts as long as its worker.
type nodeUp struct {
	Namespace string     `json:"namespace"` // path
	Addr      netip.Addr `json:"addr"`
	MTU       int        `json:"mtu"`
}

// nodeEndTime is how long the nodes may take to end in order.
const nodeEndTime = 3 * time.Second

// nodeGoneTime is how long their process may take to be gone after their interfaces. Longer in a
// test.
var nodeGoneTime = 100 * time.Millisecond

func newNodePath(cfg NodeConfig) nodePath {
	p := nodePath{cfg: cfg}
	p.up, p.down = context.WithCancelCause(context.Background())
	return p
}

// Info implements Path.
func (p *nodePath) Info() Info { return p.cfg.infoOf(p.mtu) }

// makeTmp makes the directory.
func (p *nodePath) makeTmp() (err error) {
	p.tmp, err = tempdir.New("dsbench")
	return err
}

// startWorker starts a worker for nodes in a namespace (nil: this one), and stores what it notes
// of them in what up points to.
func (p *nodePath) startWorker(ctx context.Context, ns *netns.NS, command string, job, up any) error {
	// It outlives ctx, so that Close can end it in order.
	w, err := worker.Start(context.WithoutCancel(ctx), ns, command, job)
	if err != nil {
		return err
	}
	if err := w.Note(up); err != nil {
		w.Stop()
		return err
	}
	n := &nodeProcess{Process: w, ended: make(chan struct{})}
	p.nodes = append(p.nodes, n)
	go func() {
		n.endErr = w.Result(new(struct{}))
		close(n.ended)
		p.down(fmt.Errorf("a node process ended: %w", n.endErr))
	}()
	return nil
}

// joinNodes makes the Pair of two nodes, which are up.
func (p *nodePath) joinNodes(nodes [2]nodeUp) (err error) {
	var ends [2]tcpbench.End
	for i, n := range nodes {
		if p.namespaces[i], err = netns.Open(n.Namespace); err != nil {
			return err
		}
		ends[i] = tcpbench.End{NS: p.namespaces[i], Addr: n.Addr}
	}
	var carriers []int
	for _, n := range p.nodes {
		carriers = append(carriers, n.PID())
	}
	p.mtu = nodes[0].MTU
	p.Pair = tcpbench.Between(ends[0], ends[1], carriers...)
	return nil
}

// Measure implements Path. It ends when a node ends.
func (p *nodePath) Measure(ctx context.Context, spec tcpbench.Spec) (r tcpbench.Result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer ctxend.Do(p.up, cancel)()
	if r, err = p.Pair.Measure(ctx, spec); err == nil {
		return r, nil
	}
	// The programs may notice before their nodes' process is quite gone.
	select {
	case <-p.up.Done():
		return r, context.Cause(p.up)
	case <-time.After(nodeGoneTime):
		return r, err
	}
}

// Close ends the nodes in order, or by force if that takes long, and removes the directory, which
// they leave only if they did not end in order.
func (p *nodePath) Close() error {
	var errs []error
	for _, ns := range p.namespaces {
		if ns != nil {
			errs = append(errs, ns.Close())
		}
	}
	// One that has ended before is no news: the measurement has said so.
	var running []*nodeProcess
	for _, n := range p.nodes {
		select {
		case <-n.ended:
		default:
			running = append(running, n)
			n.End()
		}
	}
	late := time.AfterFunc(nodeEndTime, func() {
		for _, n := range running {
			n.Kill()
		}
	})
	defer late.Stop()
	for _, n := range running {
		<-n.ended
		errs = append(errs, n.endErr)
	}
	for _, n := range p.nodes {
		n.Stop()
	}
	p.down(nil)
	if p.tmp != "" {
		errs = append(errs, tempdir.Remove(p.tmp))
	}
	return errors.Join(errs...)
}
