package client

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A knock is heard, or turned away at once.
func TestKnock(t *testing.T) {
	door := filepath.Join(t.TempDir(), "door")
	if err := knockAt(door); !errors.Is(err, unix.ENOENT) {
		t.Errorf("without a door: %v", err)
	}
	ln, err := net.ListenUnix(Network, &net.UnixAddr{Name: door, Net: Network})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	if err := knockAt(door); err != nil {
		t.Error(err)
	}
	if c, err := ln.AcceptUnix(); err != nil {
		t.Error(err)
	} else if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if err := knockAt(door); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("at a dead agent's door: %v", err)
	}
}
