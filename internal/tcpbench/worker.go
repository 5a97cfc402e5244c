package tcpbench

import (
	"context"
	"io"

	"exnet/internal/ctxend"
	"exnet/internal/worker"
)

// WorkerCommand is the hidden command that every program which measures has: its
// main calls RunWorker when it is the only argument.
const WorkerCommand = "worker"

// RunWorker is one end of a measurement, given by the job that it reads from in.
// It is a process's whole life. When in ends, nobody wants the result any more,
// and onEOF is called, which is to end the process: the job does not notice.
func RunWorker(in io.Reader, out io.Writer, onEOF func()) error {
	return worker.Run(in, out, func(ctx context.Context, j job, note func(any) error) (any, error) {
		defer ctxend.Do(ctx, onEOF)()
		return j.do(note)
	})
}
