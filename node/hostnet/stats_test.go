package hostnet_test

import (
	"errors"
	"testing"

	"exnet/internal/netns/netnstest"
	"exnet/node/hostnet"
)

func TestRootStats(t *testing.T) {
	n := netnstest.New(t)
	c := open(t, n)
	if err := c.LoopbackUp(); err != nil {
		t.Fatal(err)
	}
	lo, err := c.Link("lo")
	if err != nil {
		t.Fatal(err)
	}
	before, err := c.Stats(lo.Index)
	if err != nil {
		t.Fatal(err)
	}
	run(t, n, "ping -c 2 -i 0.01 127.0.0.1")
	after, err := c.Stats(lo.Index)
	if err != nil || after.RxPackets-before.RxPackets != 4 || after.TxBytes-before.TxBytes < 4*84 {
		t.Errorf("before %+v, after %+v, %v", before, after, err)
	}
	if _, err := c.Stats(1 << 20); !errors.Is(err, hostnet.ErrNoLink) {
		t.Errorf("got %v, want %v", err, hostnet.ErrNoLink)
	}
}
