package directsockets_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/segment"
)

// TestWritersShare: goroutines that share a connection, which is full nearly all the time, write
// whole records, as on TCP: a Write that waits for room lets no other one between its bytes.
func TestWritersShare(t *testing.T) {
	cfg := directsockets.Config{Broker: startBroker(t), Eager: true}
	for _, size := range []int{400, 20_000, 200_000} {
		c, s := pair(t, cfg, cfg)
		makeDirect(t, c, s)
		writersShare(t, c, s, size)
		c.Close()
		s.Close()
	}
}

// full waits until c has taken nothing more for some time: its writers wait for room, or are done.
func full(t *testing.T, c *directsockets.Conn) {
	t.Helper()
	sent := func() uint64 { n := c.Stats().Counters; return n[segment.SentDirect] + n[segment.SentShadow] }
	eventually(t, "nothing more is sent", func() bool {
		before := sent()
		time.Sleep(time.Millisecond)
		return sent() == before
	})
}

// writersShare has four writers send records of a size to one reader.
func writersShare(t *testing.T, c, s *directsockets.Conn, size int) {
	t.Helper()
	const writers, room = 4, 8 << 20 // of a connection, and more
	count := max(100, 2*room/size/writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			b := bytes.Repeat([]byte{byte(w)}, size)
			for i := range count {
				binary.BigEndian.PutUint32(b[1:], uint32(i))
				if n, err := c.Write(b); n != size || err != nil {
					t.Errorf("writer %d: %d bytes of record %d, %v", w, n, i, err)
					return
				}
			}
		})
	}
	var next [writers]uint32
	b := make([]byte, size)
	for i := range writers * count {
		if i%max(1, room/4/size) == 0 {
			full(t, c)
		}
		if _, err := io.ReadFull(s, b); err != nil {
			t.Fatal(err)
		}
		w := int(b[0])
		if w >= writers || binary.BigEndian.Uint32(b[1:]) != next[w] || bytes.Count(b[5:], b[:1]) != size-5 {
			t.Fatalf("size %d: a record begins %x; the next of each writer: %d", size, b[:8], next)
		}
		next[w]++
	}
	wg.Wait()
}
