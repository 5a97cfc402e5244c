package shm_test

import (
	"bytes"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/internal/foreigntest"
)

// changing has the peer of a link change each byte of its ring and its arena as soon
// as it was read on this side.
func changing(t *testing.T) (*foreigntest.Reads, [2]*nic.NIC) {
	near, far := fabrictest.NewNIC(t, 0), fabrictest.NewNIC(t, 1)
	l, foe := fabrictest.JoinSHM(t, near, far)
	arena, err := far.ATU().Arena()
	if err != nil {
		t.Fatal(err)
	}
	reads := foreigntest.Watch(t, func(mem []byte) bool {
		if off, ok := l.RingOffset(mem); ok {
			return foreigntest.Flip(foe.Segment()[off:][:len(mem)])
		}
		if off, ok := l.ArenaOffset(mem); ok {
			return foreigntest.Flip(arena.Bytes()[off:][:len(mem)])
		}
		return false // private, or what the far NIC reads
	})
	return reads, [2]*nic.NIC{near, far}
}

// once fails if a byte was read again since the last call.
func once(t *testing.T, r *foreigntest.Reads, what string) {
	t.Helper()
	if read, again := r.Bytes(); read == 0 || again != 0 {
		t.Errorf("%s: %d bytes read, %d of them again", what, read, again)
	}
	r.Reset()
}

// Messages of every length come as they were sent, also those that wait for room.
func TestMessagesAreReadOnce(t *testing.T) {
	reads, nics := changing(t)
	rx := fabrictest.OpenVELO(t, nics[0], vpid, velo.Config{Slots: 16, Credits: 16})
	var tx [2]*velo.Endpoint // together they have more credits than there are slots
	for i := range tx {
		tx[i] = fabrictest.OpenVELO(t, nics[1], vpid+fabric.VPID(i), velo.Config{})
	}
	message := func(i, n int) []byte { return bytes.Repeat([]byte{byte(n), 0xa5, byte(i)}, 40)[:n] }
	for first := 1; first <= velo.MaxPayload; first += 15 {
		for n := first; n < first+15; n++ {
			for i := range tx {
				if err := tx[i].Send(velo.Descriptor{Dst: 0, VPID: vpid}, message(i, n)); err != nil {
					t.Fatal(n, err)
				}
			}
		}
		var got [2]int
		for range 2 * 15 {
			fabrictest.Eventually(t, "a message", func() bool { _, _, ok := rx.Peek(); return ok })
			st, p, _ := rx.Peek()
			i := int(st.SrcVPID - vpid)
			if n := first + got[i]; !bytes.Equal(p, message(i, n)) {
				t.Fatalf("message of %d bytes: %x", n, p)
			}
			got[i]++
			rx.Advance()
		}
	}
	once(t, reads, "VELO")
}

// The data of a GET and of a PUT is what it was when it was asked for, over every way
// that the link has for it.
func TestTransfersAreReadOnce(t *testing.T) {
	reads, nics := changing(t)
	const size = 10000
	var eps [2]*rma.Endpoint
	for i, n := range nics {
		eps[i] = fabrictest.OpenRMA(t, n, vpid, rma.Config{})
	}
	data := bytes.Repeat([]byte("0123456789abcdefghi"), size/19+1)[:size]
	arena, err := nics[1].ATU().Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	sink := fabrictest.Register(t, nics[0], vpid, size, atu.Write)
	all, err := sink.LendAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		mem  []byte // of node 1
		loan bool
		put  int // bytes; 0: GET of size
	}{
		{"GET of a loan", arena, true, 0},
		{"GET by request", arena, false, 0},
		{"GET of memory outside of the arena", make([]byte, size), false, 0},
		{"PUT", arena, false, size},
		{"PUT of memory outside of the arena", make([]byte, size), false, size},
		{"PUT in the message", arena, false, 60},
	} {
		copy(tt.mem, data)
		clear(sink.Bytes())
		r, err := nics[1].ATU().Register(vpid, tt.mem, atu.Read)
		if err != nil {
			t.Fatal(err)
		}
		reads.Reset()
		n, initiator := size, 0
		if tt.put > 0 {
			n, initiator = tt.put, 1
			err = eps[1].Put(rma.PutReq{Local: r.NLA(), Remote: all, Len: n, Node: 0, VPID: vpid, Notify: rma.NotifyRequester})
		} else {
			lend := r.LendAll
			if tt.loan {
				lend = func() (atu.NLA, error) { return r.Lend(0) }
			}
			remote, lerr := lend()
			if lerr != nil {
				t.Fatal(lerr)
			}
			err = eps[0].Get(rma.GetReq{Local: sink.NLA(), Remote: remote, Len: n, Node: 1, VPID: vpid, Notify: rma.NotifyCompleter})
		}
		if err != nil {
			t.Fatal(tt.name, err)
		}
		fabrictest.Eventually(t, tt.name, func() bool {
			got, ok := eps[initiator].Next()
			if ok && got.Status != fabric.StatusOK {
				t.Errorf("%s: %+v", tt.name, got)
			}
			return ok
		})
		if !bytes.Equal(sink.Bytes()[:n], data[:n]) {
			t.Errorf("%s: other data came than was sent", tt.name)
		}
		once(t, reads, tt.name)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
