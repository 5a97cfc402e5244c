package ports

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Memory that is unregistered while the node of another host writes to it: what a program registers
// meanwhile is not that memory, and stays as it is.
func TestUnregister(t *testing.T) {
	for _, kind := range []string{"plain", "asan"} {
		t.Run(kind, func(t *testing.T) {
			_, all := newHosts(t, 2)
			held := newStop()
			all[1].mover.before.Store(held)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, testProgram(t, kind, "unregister"), all[0].processes, all[1].processes)
			var errs strings.Builder
			cmd.Env, cmd.Stderr = os.Environ(), &errs
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			expect := func(want string) {
				if !lines.Scan() || lines.Text() != want {
					t.Errorf("the program says %q, want %q", lines.Text(), want)
				}
			}
			expect("posted")
			select {
			case <-held.there:
			case <-ctx.Done():
			}
			_, _ = io.WriteString(in, "held\n") // it may have ended
			expect("registered")
			close(held.over)
			_, _ = io.WriteString(in, "over\n")
			expect("done")
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, &errs)
			}
			for _, h := range all {
				h.idle(t)
				h.still(t)
			}
		})
	}
}
