package dsbench

import (
	"encoding/json"
	"fmt"
	"io"
)

// runWorker does the one job that it reads from in and writes its replies to
// out. It is a process's whole life. When in ends, nobody wants the result any
// more, and onEOF is called; only nodes are ended in order instead.
func runWorker(in io.Reader, out io.Writer, onEOF func()) error {
	lines := json.NewDecoder(in)
	var j job
	if err := lines.Decode(&j); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	eof := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(eof)
	}()
	replies := json.NewEncoder(out)
	say := func(r reply) error { return replies.Encode(r) }
	var result jobResult
	var err error
	if j.Role == roleNode {
		result, err = runNode(j.Node, say, eof)
	} else {
		go func() {
			<-eof
			onEOF()
		}()
		result, err = doJob(j, say)
	}
	if err != nil {
		return say(reply{Error: err.Error()})
	}
	return say(reply{Result: &result})
}

// doJob measures what j says. A listening end tells say where it listens.
func doJob(j job, say func(reply) error) (jobResult, error) {
	if err := j.check(); err != nil {
		return jobResult{}, err
	}
	switch j.Role {
	case roleReceive, roleEcho:
		return serveKernel(j, say)
	case roleSend, rolePing:
		return connectKernel(j)
	case roleNetstackStream, roleNetstackPingPong:
		return runNetstack(j)
	}
	return jobResult{}, fmt.Errorf("unknown role %q", j.Role)
}
