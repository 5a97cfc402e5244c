package stream

import (
	"bytes"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link"
)

// status is a Done that remembers.
type status chan fabric.Status

func (s status) Done(st fabric.Status) { s <- st }

// mapped returns memory with a pattern, which is not Go's.
func mapped(t *testing.T, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	for i := range mem {
		mem[i] = byte(i * 31 >> 5)
	}
	return mem
}

// A peer that has stopped reading holds references to the pages of a PUT. The link ends, the memory
// goes, and what the peer reads after that is what was sent.
func TestLentToStalledPeer(t *testing.T) {
	for _, conns := range []int{1, 2} {
		v := newVictim(t, conns, true, Config{})
		data := mapped(t, 8<<20)
		want := bytes.Clone(data)
		ended := make(status, 1)
		port{v.link}.Put(link.Put{From: 1, To: 1, Steady: true}, data, ended)
		for v.link.Stats().Blocked == 0 || v.link.Stats().TxLent == 0 {
			v.link.schedule()
		}
		if err := v.link.Close(); err != nil {
			t.Fatal(err)
		}
		<-v.link.Done()
		if st := <-ended; st != fabric.StatusPeerDown {
			t.Fatal(st)
		}
		if err := unix.Munmap(data); err != nil {
			t.Fatal(err)
		}
		readPuts(t, v.peer[conns-1], want, len(want))
	}
}

// readPuts reads chunks of PUTs of data until most bytes have come or nothing does any more, and
// returns how many did.
func readPuts(t *testing.T, c net.Conn, data []byte, most int) (n int) {
	t.Helper()
	var b []byte
	buf := make([]byte, 1<<16)
	for n < most {
		k, err := c.Read(buf)
		if err != nil {
			return n
		}
		b = append(b, buf[:k]...)
		for {
			var m message
			k, err := m.parse(b)
			size := 0
			if m.kind == kindPutData {
				size = chunkLen(m.n, m.off)
			}
			if err != nil {
				t.Fatal(err)
			}
			if k == 0 || len(b) < k+size {
				break
			}
			if !bytes.Equal(b[k:k+size], data[m.off:m.off+size]) {
				t.Fatalf("other bytes came from %d on", m.off)
			}
			b, n = b[k+size:], n+size
		}
	}
	return n
}

// Without a pipe everything is copied, from the first byte or from any other on.
func TestNoPipe(t *testing.T) {
	v := newVictim(t, 1, true, Config{})
	c := v.link.conns[0]
	c.wmu.Lock()
	c.pipe.close()
	c.wmu.Unlock()
	data := mapped(t, 200<<10)
	defer unix.Munmap(data)
	ended := make(status, 1)
	port{v.link}.Put(link.Put{From: 1, To: 1, Steady: true}, data, ended)
	if n := readPuts(t, v.peer[0], data, len(data)); n != len(data) {
		t.Errorf("%d bytes came", n)
	}
	if n := v.link.Stats().TxLent; n != 0 {
		t.Errorf("%d bytes lent", n)
	}
}

// A socket that takes a part at a time, in the middle of heads and of pages, gets all in order.
// Long operations are lent in part.
func TestLentInParts(t *testing.T) {
	v := newVictim(t, 1, true, Config{})
	fd := v.link.conns[0].fd
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1); err != nil { // the least there is
		t.Fatal(err)
	}
	const puts = 16
	data := mapped(t, 500<<10+7)
	defer unix.Munmap(data)
	ended := make(status, puts)
	for range puts {
		port{v.link}.Put(link.Put{From: 1, To: 1, Steady: true}, data, ended)
	}
	if n := readPuts(t, v.peer[0], data, puts*len(data)); n != puts*len(data) {
		t.Errorf("%d bytes came", n)
	}
	s := v.link.Stats()
	if s.Blocked == 0 || s.TxLent == 0 || s.TxLent > puts*spliceHeads*(chunkSize+headSlot) {
		t.Errorf("blocked %d times, %d bytes lent", s.Blocked, s.TxLent)
	}
}
