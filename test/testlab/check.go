package testlab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/node/tun"
)

// RequireTUN skips the test, and says why, unless it may make namespaces and TUN interfaces.
func RequireTUN(t testing.TB) {
	t.Helper()
	netnstest.Require(t)
	if err := tun.Supported(); err != nil {
		t.Skip(err)
	}
}

// Await waits until f returns nil. It returns f's last error if that takes minutes: something
// hangs.
func Await(f func() error) (err error) {
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return err
}

// CheckNobodyIn fails the test if a process other than this one stays in the namespace: a program
// that was started and forgotten, or a child of one.
func CheckNobodyIn(t testing.TB, ns *netns.NS) {
	t.Helper()
	want, err := os.Stat(ns.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return // it has gone with its last process
	}
	if err != nil {
		t.Error(err)
		return
	}
	if err := Await(func() error { return nobodyIn(want) }); err != nil {
		t.Error(err)
	}
}

// nobodyIn says which process is in the namespace whose file is want.
func nobodyIn(want fs.FileInfo) error {
	places, err := filepath.Glob("/proc/[0-9]*/ns/net")
	self := fmt.Sprintf("/proc/%d/", os.Getpid())
	for _, place := range places {
		at, err := os.Stat(place)
		if err != nil || !os.SameFile(want, at) || strings.HasPrefix(place, self) {
			continue
		}
		process := filepath.Join(place, "../..")
		name, _ := os.ReadFile(filepath.Join(process, "comm")) // it may be ending
		return fmt.Errorf("%s is still in the namespace: %s", process, strings.TrimSpace(string(name)))
	}
	return err
}
