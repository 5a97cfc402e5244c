package fabrictest

import (
	"testing"

	"exnet/fabric"
	"exnet/fabric/nic"
	"exnet/fabric/velo"
)

// Rejoin joins x, whose node ID is 0, and y, whose ID is 1, repeatedly, by join, which returns
// what takes the link down and waits for that. Each time two mailboxes of x fill one of y, beyond
// its slots. The numbers of the flows have to be those of the first time: a peer that comes again
// and again takes none from the others.
func Rejoin(t *testing.T, x, y *nic.NIC, join func() (leave func())) {
	t.Helper()
	const slots = 8
	to := OpenVELO(t, y, vpid, velo.Config{Slots: slots, Credits: slots})
	from := []*velo.Endpoint{OpenVELO(t, x, vpid, velo.Config{}), OpenVELO(t, x, vpid+1, velo.Config{})}
	for round := range 4 {
		leave := join()
		for i, e := range from {
			Eventually(t, "the mailbox is known", func() bool { return e.Credits(y.ID(), vpid) == slots })
			for range slots {
				if err := e.Send(velo.Descriptor{Dst: y.ID(), VPID: vpid}, []byte{byte(round), byte(i)}); err != nil {
					t.Fatalf("round %d: %v", round, err)
				}
			}
		}
		read := 0
		next := func() bool {
			st, p, ok := to.Peek()
			if !ok {
				return false
			}
			if st.Flow > 1 || p[0] != byte(round) || st.SrcVPID != vpid+fabric.VPID(p[1]) {
				t.Errorf("round %d: %+v, % x", round, st, p)
			}
			to.Advance()
			read++
			return true
		}
		for range 2 { // of each is something there
			Eventually(t, "a message", next)
		}
		leave()
		for next() {
		}
		if read > 2*slots {
			t.Errorf("round %d: %d messages", round, read)
		}
	}
}
