package segment

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

// When the ring is full, what is sent goes in VELO messages, as long as there are
// slots, and is received in its place.
func TestFallback(t *testing.T) {
	client, server := promoted(t, Config{Slots: 32, Ring: 64 << 10})
	data := make([]byte, 256<<10)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(rnd.Uint32())
	}
	var got []byte
	buf := make([]byte, 40000)
	sent := 0
	for len(got) < len(data) {
		for sent < len(data) {
			n, err := client.Send(data[sent:])
			if sent += n; errors.Is(err, ErrAgain) {
				before := client.count[SentVELO].Load() + client.count[SentVELOLast].Load()
				n, err = client.SendVELO(data[sent:])
				if sent += n; errors.Is(err, ErrAgain) {
					break
				}
				if after := client.count[SentVELO].Load() + client.count[SentVELOLast].Load(); after == before || n > 32*MaxVELO {
					t.Fatalf("%d bytes in %d messages", n, after-before)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		n, err := server.Recv(buf[:1+rnd.IntN(len(buf))])
		if err != nil {
			if errors.Is(err, ErrAgain) {
				continue
			}
			t.Fatal(err)
		}
		got = append(got, buf[:n]...)
	}
	if !bytes.Equal(got, data) {
		t.Error("the data is not what was sent")
	}
	if client.count[SentVELO].Load() == 0 || client.count[SentRMAInfo].Load() == 0 {
		t.Errorf("%d VELO messages, %d through the ring", client.count[SentVELO].Load(), client.count[SentRMAInfo].Load())
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = client.SendVELO(data[:100]); _, _ = server.Recv(buf) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
