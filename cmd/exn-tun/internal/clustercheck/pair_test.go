package clustercheck_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"exnet/cmd/exn-tun/internal/clustercheck"
	"exnet/directsockets/broker"
	"exnet/directsockets/broker/client"
)

// A client says that its connection is direct where there is a broker, and fails without a server.
func TestPair(t *testing.T) {
	b, err := broker.New(broker.Config{Path: filepath.Join(t.TempDir(), "ds.sock")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	go b.Run(t.Context())
	t.Setenv(client.PathEnv, b.Path())

	l, err := clustercheck.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- clustercheck.Serve(ctx, l) }()
	o, err := clustercheck.Dial(t.Context(), l.Addr().String(), time.Minute)
	if err != nil || !o.Direct || o.Reason != "" || o.RoundTrip <= 0 || o.TCP <= 0 {
		t.Errorf("got %+v, %v, want a direct connection", o, err)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := clustercheck.Dial(t.Context(), l.Addr().String(), time.Minute); err == nil {
		t.Error("there was an outcome without a server")
	}
}
