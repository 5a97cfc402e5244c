package fabrictest

import (
	"bytes"
	"errors"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
	"exnet/fabric/nic"
	"exnet/fabric/rma"
	"exnet/fabric/velo"
	"exnet/internal/foreigntest"
)

const onceVPID fabric.VPID = 90

// onceSize is that of a transfer, in bytes.
const onceSize = 10000

// ReadOnce moves messages and transfers of many sizes between two NICs, near and far, while change
// changes each byte of foreign memory right after it was read, and reports whether that read
// counts: foreigntest.Flip, or what a link needs to reach the memory. All has to come as it was
// sent, and no byte may be read twice. At last it reads a region by two GETs, which has to be
// found.
func ReadOnce(t *testing.T, near, far *nic.NIC, change func(mem []byte) bool) {
	reads := foreigntest.Watch(t, change)
	defer reads.Stop()
	t.Run("messages", func(t *testing.T) { messagesOnce(t, near, far, reads) })
	mine, other := OpenRMA(t, near, onceVPID, rma.Config{}), OpenRMA(t, far, onceVPID, rma.Config{})
	sink := lendRegion(t, near, onceSize, atu.Write)
	t.Run("transfers", func(t *testing.T) { transfersOnce(t, near, far, mine, other, sink, reads) })
	t.Run("planted fault", func(t *testing.T) { plantedOnce(t, far, mine, sink, reads) })
}

// lendRegion lends a region of the memory that peers reach on every link.
func lendRegion(t *testing.T, n *nic.NIC, size int, access atu.Access) *atu.Region {
	t.Helper()
	mem, err := n.ATU().Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	r, err := n.ATU().Register(onceVPID, mem, access)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkOnce fails if a byte was read again since the last call.
func checkOnce(t *testing.T, r *foreigntest.Reads, what string) {
	t.Helper()
	if _, again := r.Bytes(); again != 0 {
		t.Errorf("%s: %d bytes were read again", what, again)
	}
	r.Reset()
}

// messagesOnce sends messages of every length from two endpoints, which together have more credits
// than the receiver has slots, a few at a time: a link may use its memory anew after those.
func messagesOnce(t *testing.T, near, far *nic.NIC, reads *foreigntest.Reads) {
	const batch = 5
	rx := OpenVELO(t, near, onceVPID, velo.Config{Slots: 16, Credits: 16})
	var tx [2]*velo.Endpoint
	for i := range tx {
		tx[i] = OpenVELO(t, far, onceVPID+fabric.VPID(i), velo.Config{})
	}
	message := func(i, n int) []byte { return bytes.Repeat([]byte{byte(n), 0xa5, byte(i)}, 40)[:n] }
	for first := 1; first <= velo.MaxPayload; first += batch {
		for n := first; n < first+batch; n++ {
			for i := range tx {
				Eventually(t, "the mailbox is known, and has room", func() bool {
					err := tx[i].Send(velo.Descriptor{Dst: near.ID(), VPID: onceVPID}, message(i, n))
					if err != nil && !errors.Is(err, fabric.ErrPeerDown) && !errors.Is(err, fabric.ErrAgain) {
						t.Fatal(n, err)
					}
					return err == nil
				})
			}
		}
		var got [2]int
		for range 2 * batch {
			Eventually(t, "a message", func() bool { _, _, ok := rx.Peek(); return ok })
			st, p, _ := rx.Peek()
			i := int(st.SrcVPID - onceVPID)
			if n := first + got[i]; !bytes.Equal(p, message(i, n)) {
				t.Fatalf("message of %d bytes: %x", n, p)
			}
			got[i]++
			rx.Advance()
		}
		checkOnce(t, reads, "messages")
	}
}

// transfersOnce GETs and PUTs, over every way that a link has for it.
func transfersOnce(t *testing.T, near, far *nic.NIC, mine, other *rma.Endpoint, sink *atu.Region, reads *foreigntest.Reads) {
	data := bytes.Repeat([]byte("0123456789abcdefghi"), onceSize/19+1)[:onceSize]
	all, err := sink.LendAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		private bool // of memory that only this process has
		loan    bool
		put     int // bytes; 0: GET
	}{
		{"GET of a loan", false, true, 0},
		{"GET by request", false, false, 0},
		{"GET of private memory", true, false, 0},
		{"PUT", false, false, onceSize},
		{"PUT of private memory", true, false, onceSize},
		{"PUT in the message", false, false, 60},
	} {
		var r *atu.Region
		if tt.private {
			r = Register(t, far, onceVPID, onceSize, atu.Read)
		} else {
			r = lendRegion(t, far, onceSize, atu.Read)
		}
		copy(r.Bytes(), data)
		clear(sink.Bytes())
		reads.Reset()
		n, initiator := onceSize, mine
		if tt.put > 0 {
			n, initiator = tt.put, other
			err = other.Put(rma.PutReq{Local: r.NLA(), Remote: all, Len: n, Node: near.ID(), VPID: onceVPID, Notify: rma.NotifyRequester})
		} else {
			lend := r.LendAll
			if tt.loan {
				lend = func() (atu.NLA, error) { return r.Lend(near.ID()) }
			}
			remote, lerr := lend()
			if tt.private && errors.Is(lerr, fabric.ErrInvalid) {
				continue // a program's share of a NIC lends no such memory
			}
			if lerr != nil {
				t.Fatal(lerr)
			}
			err = mine.Get(rma.GetReq{Local: sink.NLA(), Remote: remote, Len: n, Node: far.ID(), VPID: onceVPID, Notify: rma.NotifyCompleter})
		}
		if err != nil {
			t.Fatal(tt.name, err)
		}
		Eventually(t, tt.name, func() bool {
			got, ok := initiator.Next()
			if ok && got.Status != fabric.StatusOK {
				t.Errorf("%s: %+v", tt.name, got)
			}
			return ok
		})
		if !bytes.Equal(sink.Bytes()[:n], data[:n]) {
			t.Errorf("%s: other data came than was sent", tt.name)
		}
		checkOnce(t, reads, tt.name)
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// plantedOnce is a receiver that asks for the same bytes twice, as one that looks at them and then
// takes them.
func plantedOnce(t *testing.T, far *nic.NIC, mine *rma.Endpoint, sink *atu.Region, reads *foreigntest.Reads) {
	const size = 1000
	r := lendRegion(t, far, size, atu.Read)
	remote, err := r.LendAll()
	if err != nil {
		t.Fatal(err)
	}
	reads.Reset()
	var got [2][]byte
	for i := range got {
		if err := mine.Get(rma.GetReq{Local: sink.NLA(), Remote: remote, Len: size, Node: far.ID(), VPID: onceVPID, Notify: rma.NotifyCompleter}); err != nil {
			t.Fatal(err)
		}
		Eventually(t, "GET", func() bool { _, ok := mine.Next(); return ok })
		got[i] = bytes.Clone(sink.Bytes()[:size])
	}
	if _, again := reads.Bytes(); again < size || bytes.Equal(got[0], got[1]) {
		t.Errorf("%d bytes of %d that were read twice are found, and they were the same: %v", again, size, bytes.Equal(got[0], got[1]))
	}
	reads.Reset()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
