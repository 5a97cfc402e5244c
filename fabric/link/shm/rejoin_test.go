package shm_test

import (
	"testing"

	"exnet/fabric/fabrictest"
)

func TestRejoin(t *testing.T) {
	x, y := fabrictest.NewNIC(t, 0), fabrictest.NewNIC(t, 1)
	fabrictest.Rejoin(t, x, y, func() func() {
		lx, ly := fabrictest.JoinSHM(t, x, y)
		return func() {
			_, _ = lx.Close(), ly.Close() // the other end may have gone down first
			<-lx.Done()
			<-ly.Done()
		}
	})
}
