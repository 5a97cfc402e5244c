package broker_test

import (
	"os"
	"path/filepath"
	"testing"

	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
)

// A broker that ends does not remove the directory that containers have mounted.
func TestRootKeep(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it wants root")
	}
	keep := filepath.Join(client.SystemDir, ".keep")
	if _, err := os.Stat(keep); err != nil {
		defer os.Remove(keep)
	}
	if err := broker.Keep(); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(client.SystemDir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := broker.New(broker.Config{})
	if err != nil {
		t.Skip(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	after, err := os.Stat(client.SystemDir)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("%s is another directory: %v", client.SystemDir, err)
	}
}
