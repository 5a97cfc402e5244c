package dsbench

import (
	"encoding/json"
	"fmt"
	"io"
)

// runWorker does the one job that it reads from in and writes its replies to
// out. It is a process's whole life: onEOF is called when in ends, which says
// that nobody wants the result any more.
func runWorker(in io.Reader, out io.Writer, onEOF func()) error {
	lines := json.NewDecoder(in)
	var j job
	if err := lines.Decode(&j); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		onEOF()
	}()
	replies := json.NewEncoder(out)
	result, err := doJob(j, func(r reply) error { return replies.Encode(r) })
	if err != nil {
		return replies.Encode(reply{Error: err.Error()})
	}
	return replies.Encode(reply{Result: &result})
}

// doJob does j. A listening end says where with say.
func doJob(j job, say func(reply) error) (jobResult, error) {
	if err := j.check(); err != nil {
		return jobResult{}, err
	}
	switch j.Role {
	case roleReceive, roleEcho:
		l, addr, err := listen(j.Address, j.Streams, j.Congestion)
		if err != nil {
			return jobResult{}, err
		}
		defer l.close()
		if err := say(reply{Listening: &addr}); err != nil {
			return jobResult{}, err
		}
		if j.Role == roleReceive {
			return receive(j, l)
		}
		return echo(j, l)
	case roleSend:
		return send(j)
	case rolePing:
		return ping(j)
	}
	return jobResult{}, fmt.Errorf("unknown role %q", j.Role)
}
