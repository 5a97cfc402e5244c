package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// Run does the one job that it reads from in, by calling do, and writes to out
// what do notes and what it returns. It is a process's whole life: the error is
// of in or out, do's own goes to out. When in ends, nobody wants the result any
// more, and do's context ends.
func Run[Job any](in io.Reader, out io.Writer, do func(ctx context.Context, job Job, note func(any) error) (result any, err error)) error {
	lines := json.NewDecoder(in)
	var job Job
	if err := lines.Decode(&job); err != nil {
		return fmt.Errorf("reading the job: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	replies := json.NewEncoder(out)
	result, err := do(ctx, job, func(v any) error { return replies.Encode(sent{Note: v}) })
	if err != nil {
		return replies.Encode(sent{Error: err.Error()})
	}
	return replies.Encode(sent{Result: result})
}
