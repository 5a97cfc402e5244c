package wire_test

import (
	"testing"
	"time"

	"exnet/fabric/fabrictest"
	"exnet/fabric/link/wire"
)

func TestRejoin(t *testing.T) {
	fab, nics := newFabric(t, wire.Faults{}, wire.Config{DownAfter: 10 * time.Minute}, 2)
	fabrictest.Rejoin(t, nics[0], nics[1], func() func() {
		return func() {
			l, far := fab.Link(0, 1), fab.Link(1, 0)
			if err := fab.Reset(0, 1); err != nil {
				t.Fatal(err)
			}
			<-l.Done()
			<-far.Done()
		}
	})
}
