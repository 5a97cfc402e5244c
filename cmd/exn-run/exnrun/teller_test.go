package exnrun

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"exnet/node/control"
)

// A broker of exn-run tells of its connections as long as it is there, and nothing of it is left.
func TestTeller(t *testing.T) {
	runtime := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	dir := filepath.Join(runtime, "exn/ds")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "1.sock")
	told := func() (found *control.Sockets) {
		t.Helper()
		all, err := control.Brokers()
		if err != nil {
			t.Error(err)
		}
		for _, s := range all {
			if s.Broker == path {
				found = s
			}
		}
		return found
	}
	// What killed brokers leave tells nothing: this one's is replaced, the other's goes.
	for _, name := range []string{"1.ctl", "2.ctl"} {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		ln.SetUnlinkOnClose(false)
		ln.Close()
	}
	if s := told(); s != nil {
		t.Errorf("of a broker that is gone: %+v", s)
	}
	ended, end := startBrokerAt(t, path, time.Minute)
	s := told()
	if s == nil || s.Node != 0 || s.Connections == nil || len(s.Connections) != 0 {
		t.Errorf("it tells %+v", s)
	}
	if info, err := os.Stat(filepath.Join(dir, "1.ctl")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its socket: %v, %v", info, err)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A socket that says nonsense is an error that names it.
func TestBrokersNonsense(t *testing.T) {
	runtime := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	path := filepath.Join(runtime, "exn/ds/1.ctl")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, says := range []string{"{}", "no", `{"sockets": 3}`} {
		go func() {
			if conn, err := ln.Accept(); err == nil {
				_, _ = conn.Write([]byte(says)) // who asks may have gone
				conn.Close()
			}
		}()
		if all, err := control.Brokers(); err == nil {
			t.Errorf("%q: %v", says, all)
		}
	}
}
