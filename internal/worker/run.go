package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// Run reads one job from in, calls do, and writes the notes and the result of do to out. An
// error of do goes to out, too; Run returns only errors of in and out. When in ends, the result
// is no longer wanted, and do's context ends.
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
