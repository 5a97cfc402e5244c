package dsbench

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

	"exnet/internal/netns"
)

// workerCommand is the argument that makes dsbench a worker.
const workerCommand = "worker"

// process is a worker as dsbench sees it.
type process struct {
	cmd     *exec.Cmd
	stdin   io.Closer // held open: the worker ends with it
	replies *json.Decoder
	stderr  *strings.Builder
}

// startWorker starts a worker for j in ns, nil being the current namespace. It
// is killed when ctx is done. The caller stops it.
func startWorker(ctx context.Context, ns *netns.NS, j job) (*process, error) {
	// Not os.Executable: that file may have been replaced since.
	cmd := exec.CommandContext(ctx, "/proc/self/exe", workerCommand)
	// Out of the terminal's process group: Ctrl-C is for dsbench.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := &process{cmd: cmd, stderr: &strings.Builder{}}
	cmd.Stderr = p.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	p.stdin, p.replies = stdin, json.NewDecoder(stdout)
	if ns == nil {
		err = cmd.Start()
	} else {
		err = ns.Start(cmd)
	}
	if err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	if err := json.NewEncoder(stdin).Encode(j); err != nil {
		p.stop()
		return nil, fmt.Errorf("giving a worker its job: %w%s", err, p.complaint())
	}
	return p, nil
}

// next waits for the worker's next reply.
func (p *process) next() (reply, error) {
	var r reply
	err := p.replies.Decode(&r)
	if err == nil && r.Error != "" {
		err = errors.New(r.Error)
		return reply{}, err
	}
	if err != nil {
		p.stop()
		return reply{}, fmt.Errorf("a worker ended without a result (%v)%s", p.cmd.ProcessState, p.complaint())
	}
	return r, nil
}

// listening waits until the worker listens, and returns where.
func (p *process) listening() (netip.AddrPort, error) {
	r, err := p.next()
	if err != nil {
		return netip.AddrPort{}, err
	}
	if r.Listening == nil {
		return netip.AddrPort{}, fmt.Errorf("a worker sent %+v before it listened", r)
	}
	return *r.Listening, nil
}

// node waits until the worker's nodes are up, and returns where they are.
func (p *process) node() (nodeReply, error) {
	r, err := p.next()
	if err != nil {
		return nodeReply{}, err
	}
	if r.Node == nil {
		return nodeReply{}, fmt.Errorf("a worker sent %+v for its nodes", r)
	}
	return *r.Node, nil
}

// result waits for what the worker found.
func (p *process) result() (jobResult, error) {
	r, err := p.next()
	if err != nil {
		return jobResult{}, err
	}
	if r.Result == nil {
		return jobResult{}, fmt.Errorf("a worker sent %+v for a result", r)
	}
	return *r.Result, nil
}

// kill ends the worker at once; next then returns.
func (p *process) kill() { _ = p.cmd.Process.Kill() } // fails only when it has ended

// stop ends the worker and waits until it is gone. It is idempotent.
func (p *process) stop() {
	p.stdin.Close()
	p.kill()
	_ = p.cmd.Wait() // "signal: killed", or an earlier call's result
}

// complaint returns the last line that the worker wrote to standard error.
func (p *process) complaint() string {
	text := strings.TrimSpace(p.stderr.String())
	if text == "" {
		return ""
	}
	return ": " + text[strings.LastIndexByte(text, '\n')+1:]
}
