package testlab

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
)

// StartBroker runs a broker of its own until the test ends.
func StartBroker(t testing.TB) *broker.Server {
	t.Helper()
	return StartBrokerSwitch(t, nil)
}

// StartBrokerSwitch is StartBroker with rules that the test changes; nil: none.
func StartBrokerSwitch(t testing.TB, sw *broker.Switch) *broker.Server {
	t.Helper()
	s, err := broker.New(broker.Config{Path: filepath.Join(t.TempDir(), "broker.sock"), Switch: sw})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	return s
}

// BrokerPID returns the process of the broker whose socket is path.
func BrokerPID(path string) (int, error) {
	conn, err := net.DialUnix(client.Network, nil, &net.UnixAddr{Name: path, Net: client.Network})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	ctlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(ctlErr, err); err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}
