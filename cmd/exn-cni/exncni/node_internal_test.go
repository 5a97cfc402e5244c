package exncni

import (
	"os/exec"
	"testing"
	"time"
)

// The process that a record names has ended, and another one has its number: it is left alone. One
// that was started as the record says is ended.
func TestStopStartingOfAnother(t *testing.T) {
	const ns = "/run/netns/c1"
	for _, c := range []struct {
		name string
		args []string // of a shell that waits
		ends bool
	}{
		{"another program", nil, false},
		{"a node of another namespace", []string{"up", "--netns", "/run/netns/c2"}, false},
		{"the one that was started", []string{"up", "--netns", ns, "--addr"}, true},
	} {
		cmd := exec.Command("sh", append([]string{"-c", "echo; read line; exit 0", "exn-tun"}, c.args...)...)
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
		if _, err := out.Read(make([]byte, 1)); err != nil { // it runs
			t.Fatal(err)
		}
		done := make(chan error, 1)
		stop := make(chan error, 1)
		go func() { stop <- stopStarting(&record{PID: cmd.Process.Pid, NetNS: ns}) }()
		if c.ends {
			go func() { done <- cmd.Wait() }() // stopStarting waits for the end
		}
		if err := <-stop; err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !c.ends {
			_ = in.Close() // it goes on to its end
			go func() { done <- cmd.Wait() }()
		}
		select {
		case err := <-done:
			if (err != nil) != c.ends { // by a signal
				t.Errorf("%s: %v", c.name, err)
			}
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			t.Errorf("%s: it does not end", c.name)
		}
		_ = in.Close()
	}
}
