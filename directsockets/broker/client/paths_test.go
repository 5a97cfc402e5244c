package client

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPaths is where a client looks for its broker.
func TestPaths(t *testing.T) {
	base := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", base)
	all, err := brokerPlaces()
	if err != nil || len(all) != 2 || filepath.Dir(all[0].path) != SystemDir || filepath.Dir(all[1].path) != filepath.Join(base, "exn/ds") ||
		filepath.Base(all[0].path) != filepath.Base(all[1].path) {
		t.Errorf("%v, %v", all, err)
	}
	t.Setenv(PathEnv, "/x/y")
	if all, err = brokerPlaces(); err != nil || len(all) != 1 || all[0].path != "/x/y" {
		t.Errorf("%v, %v", all, err)
	}
	t.Setenv(TapEnv, "/tap")
	if all, err = brokerPlaces(); err != nil || len(all) != 2 || all[0].path != "/tap" || all[1].path != "/x/y" {
		t.Errorf("%v, %v", all, err)
	}
	t.Setenv("XDG_RUNTIME_DIR", "")
	if d := UserDir(); !strings.HasPrefix(d, "/tmp/exn-") {
		t.Error(d)
	}
}

// A tap that takes nobody at the moment is waited for if it is root's or this user's. Somebody
// else's, at the path of one that has gone, is passed over.
func TestTapOfSomebodyElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	tap := filepath.Join(t.TempDir(), "tap")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: tap}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	first, err := net.DialUnix(Network, nil, &net.UnixAddr{Name: tap, Net: Network}) // the queue is full
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	own := fakeBroker(t, func(_ *testing.T, c *net.UnixConn) { _, _ = c.Read(make([]byte, 1)) })
	t.Setenv(TapEnv, tap)
	t.Setenv(PathEnv, own)
	// reached says how far a client comes: own does not answer.
	reached := func() error {
		c, err := newClient(Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.stats.Close()
		_, _, err = c.connectBroker(t.Context())
		return err
	}
	if err := reached(); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("the user's own tap: %v", err)
	}
	if err := os.Lchown(tap, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if err := reached(); err == nil || errors.Is(err, unix.EAGAIN) {
		t.Errorf("somebody else's: %v", err)
	}
}
