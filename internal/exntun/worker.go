package exntun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"exnet/internal/dsbench"
	"exnet/internal/netns"
	"exnet/internal/stats"
)

// workerCommand is the hidden command that makes this program a worker of
// package dsbench: one end of a measurement, given in a line of JSON.
const workerCommand = "worker"

func runWorker(ctx context.Context, p program, _ []string) error {
	return exitStatus(dsbench.Run(ctx, []string{"worker"}, p.stdout, p.stderr))
}

// Roles of a worker.
const (
	roleReceive = "receive" // listens, counts a stream
	roleSend    = "send"    // connects, sends a stream
	roleEcho    = "echo"    // listens, returns every message
	rolePing    = "ping"    // connects, times round trips
)

// anyCPU leaves the choice of a CPU to the scheduler.
const anyCPU = -1

// job is the line that a worker is given, as package dsbench reads it.
type job struct {
	Role       string         `json:"role"`
	Address    netip.AddrPort `json:"address"`
	Size       int            `json:"size"`
	Streams    int            `json:"streams"`
	Duration   time.Duration  `json:"duration_ns"`
	Warmup     time.Duration  `json:"warmup_ns"`
	Congestion string         `json:"congestion"`
	CPU        int            `json:"cpu"`
}

// timeout bounds a measurement: whatever hangs is not worth waiting for.
func (j job) timeout() time.Duration { return j.Warmup + j.Duration + 5*time.Second }

// reply is a line from a worker.
type reply struct {
	Listening *netip.AddrPort `json:"listening"`
	Result    *workerResult   `json:"result"`
	Error     string          `json:"error"`
}

// workerResult is what one end found.
type workerResult struct {
	Bytes      int64            `json:"bytes"`
	Seconds    float64          `json:"seconds"`
	RoundTrips *stats.Histogram `json:"round_trips"`
}

// ends says who does what in a measurement, and on which CPU.
type ends struct {
	client, server       string
	clientCPU, serverCPU int
}

// runWorkers runs the two ends of a measurement, the client in p.a and the
// server in p.b, and returns what both found.
func runWorkers(ctx context.Context, p path, f family, e ends, j job) (client, server workerResult, err error) {
	late := fmt.Errorf("no result within %v", j.timeout())
	ctx, cancel := context.WithTimeoutCause(ctx, j.timeout(), late)
	defer cancel()
	// That a worker was killed is no news; why is.
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	j.Role, j.Address, j.CPU = e.server, netip.AddrPortFrom(p.b.addrs[f], 0), e.serverCPU
	group, work := errgroup.WithContext(ctx)
	srv, err := startWorker(work, p.b.ns, j)
	if err != nil {
		return client, server, err
	}
	defer srv.stop()
	r, err := srv.next()
	if err == nil && r.Listening == nil {
		err = errors.New("a worker does not say where it listens")
	}
	if err != nil {
		return client, server, err
	}
	j.Role, j.Address, j.CPU = e.client, *r.Listening, e.clientCPU
	cli, err := startWorker(work, p.a.ns, j)
	if err != nil {
		return client, server, err
	}
	defer cli.stop()
	// The first to fail knows why; the other only that its peer is gone.
	group.Go(func() (err error) {
		client, err = cli.result()
		return err
	})
	group.Go(func() (err error) {
		server, err = srv.result()
		return err
	})
	err = group.Wait()
	return client, server, err
}

// worker is a process that does a job.
type worker struct {
	cmd     *exec.Cmd
	stdin   io.Closer // held open: the worker ends with it
	replies *json.Decoder
	stderr  *strings.Builder
}

// startWorker starts a worker for j in ns. It is killed when ctx is done. The
// caller stops it.
func startWorker(ctx context.Context, ns *netns.NS, j job) (*worker, error) {
	// Not os.Executable: that file may have been replaced since.
	cmd := exec.CommandContext(ctx, "/proc/self/exe", workerCommand)
	// Out of the terminal's process group: Ctrl-C is for exn-tun.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	w := &worker{cmd: cmd, stderr: &strings.Builder{}}
	cmd.Stderr = w.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	w.stdin, w.replies = stdin, json.NewDecoder(stdout)
	if err := ns.Start(cmd); err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	if err := json.NewEncoder(stdin).Encode(j); err != nil {
		w.stop()
		return nil, fmt.Errorf("giving a worker its job: %w%s", err, lastLine(w.stderr.String()))
	}
	return w, nil
}

// next waits for the worker's next reply.
func (w *worker) next() (reply, error) {
	var r reply
	if err := w.replies.Decode(&r); err != nil {
		w.stop()
		return r, fmt.Errorf("a worker ended without a result (%v)%s", w.cmd.ProcessState, lastLine(w.stderr.String()))
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}

// result waits for what the worker found.
func (w *worker) result() (workerResult, error) {
	r, err := w.next()
	if err == nil && r.Result == nil {
		err = errors.New("a worker gives no result")
	}
	if err != nil {
		return workerResult{}, err
	}
	return *r.Result, nil
}

// stop ends the worker and waits until it is gone. It is idempotent.
func (w *worker) stop() {
	w.stdin.Close()
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait() // "signal: killed", or an earlier call's result
}
