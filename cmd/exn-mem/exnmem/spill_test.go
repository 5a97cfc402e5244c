package exnmem

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/internal/longtest"
	"exnet/memory/pool"
	"exnet/memory/pool/pooltest"
)

// held is a program that fills memory, waits, and then says what it has.
const held = `
import hashlib, os, sys, time
b = bytearray(bytes(range(256)) * 131072)
for i in range(0, len(b), 4096): b[i:i+4] = i.to_bytes(4, 'little')
open(sys.argv[1], 'w').close()
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
print(hashlib.sha256(b).hexdigest())
`

// await waits for a condition.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for i := 0; !f(); i++ {
		if i == 6000 {
			t.Fatalf("%s: not in a minute", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// The memory of a program is with two nodes, of which neither has enough, all at once or in steps.
// One wants it back: it moves to a third, and the program sees nothing of that. If there is none,
// the program gets SIGBUS, and one line says why.
func TestLendersChange(t *testing.T) {
	longtest.Nightly(t) // a run of the package hung once, and this test is its newest
	needPaging(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want, err := exec.CommandContext(t.Context(), "python3", "-c", held, path("ready"), path("go")).Output()
	if err != nil {
		t.Skip(err)
	}
	lend := pool.Config{Limits: pool.Limits{Lend: 32 << 20}}
	for i, c := range []struct {
		step  string
		third bool
	}{{"", true}, {"8M", true}, {"", false}} {
		t.Run(fmt.Sprintf("%s,%v", c.step, c.third), func(t *testing.T) {
			f := pooltest.New(t, pool.Config{}, lend, lend, pool.Config{})
			ready, gone := path(fmt.Sprintf("ready%d", i)), path(fmt.Sprintf("go%d", i))
			args := []string{"run", "--local", "8M", "--remote", "60M"}
			if c.step != "" {
				args = append(args, "--step", c.step)
			}
			cmd := exnMem(t, append(args, "--", "python3", "-c", held, ready, gone)...)
			cmd.Env = append(cmd.Env, "EXN_MEMORY="+f.Socket(0))
			type outcome struct {
				stdout, stderr string
				status         int
			}
			ended := make(chan outcome, 1)
			go func() {
				stdout, stderr, status := result(t, cmd)
				ended <- outcome{stdout, stderr, status}
			}()
			await(t, "the program's memory", func() bool { return exists(ready) })
			for n, s := range f.Nodes[1:3] {
				if len(s.Status().Lent) == 0 && c.step == "" {
					t.Errorf("node %d lends nothing", n+1)
				}
			}
			f.Nodes[1].SetLimits(pool.Limits{})
			if c.third {
				f.Nodes[3].SetLimits(pool.Limits{Lend: 1 << 30})
			}
			within := 200 * time.Millisecond
			if c.third {
				within = time.Minute // a guard against a hang: it is given back when it has moved
			}
			f.Nodes[1].Revoke(func(pool.Lease) bool { return true }, within)
			await(t, "node 1's memory", func() bool { return len(f.Nodes[1].Status().Lent) == 0 })
			if forced := f.Nodes[1].Stats().Forced; c.third != (forced == 0) {
				t.Errorf("%d leases taken by force", forced)
			}
			if err := os.WriteFile(gone, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			o := <-ended
			if c.third {
				if o.stdout != string(want) || o.status != 0 || o.stderr != "" {
					t.Errorf("status %d, %q, want %q\n%s", o.status, o.stdout, want, o.stderr)
				}
			} else if o.status != 128+int(unix.SIGBUS) || strings.Count(o.stderr, "exn-mem: ") != 1 || !strings.Contains(o.stderr, "node 1 takes its memory back, and no other has room") {
				t.Errorf("status %d, %q\n%s", o.status, o.stdout, o.stderr)
			}
			await(t, "the end of all leases", func() bool {
				n := 0
				for _, s := range f.Nodes {
					n += len(s.Status().Lent)
				}
				return n == 0
			})
		})
	}
}
