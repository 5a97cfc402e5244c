package relay

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/directsockets/segment"
)

// published is how many of the first messages are in the queue that e receives from (SPEC 2.3): the
// queue has not been full yet.
func published(e *segment.End, slots int) (n int) {
	const queues, slot = 4096, 128
	queue := e.Segment().Exposed()[queues+(1-int(e.Side()))*slots*slot:]
	for n < slots && binary.LittleEndian.Uint32(queue[n*slot:]) == 1 {
		n++
	}
	return n
}

// die has the doorbell of a program end as that of one that was killed.
func die(t *testing.T, e *segment.End) {
	t.Helper()
	raw, err := e.Bell().SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What a sender has published before it finds FALLEN_BACK comes into the queue of the receiver that
// has fallen back, all of it before RETURNED, and before the shadow's end: also if the sender
// closes, or is killed, in between.
func TestFallenBackGetsAll(t *testing.T) {
	for _, how := range []string{"returns", "closes", "is killed"} {
		t.Run(how, func(t *testing.T) {
			const slots, messages = 256, 100
			hosts, client, server := pair(t, segment.Config{Slots: slots, Ring: 1 << 20}, alone)
			data := pattern(5, 10_000)
			if err := send(t, client, data[:50], true); err != nil {
				t.Fatal(err)
			}
			if _, err := receive(t, server, 20, true); err != nil { // in the middle of a message
				t.Fatal(err)
			}
			goOn := hosts[0].pause(t)
			defer goOn()
			sent := 2 // PROMOTE, and that one
			for i := range messages {
				if n, err := client.Send(data[i*100 : (i+1)*100]); n != 100 || err != nil {
					t.Fatal(n, err)
				}
				sent++
			}
			if err := server.FallBack(); err != nil {
				t.Fatal(err)
			}
			packet := packet4(clientAddr, serverAddr, tcpFIN, 0)
			gate, _ := hosts[0].engine.Gate(packet)
			if gate == nil {
				t.Fatal("nothing holds the shadow's end")
			}
			passed := make(chan int, 1)
			hosts[0].engine.Hold(gate, false, func() { passed <- published(server, slots) })
			if how == "closes" {
				_ = client.Close(false)
			}
			if how == "is killed" {
				die(t, client)
			}
			goOn()
			if how == "returns" {
				until(t, "fallen back", client.FallenBack)
				var got []byte
				if err := client.ReturnToTCP(func(p []byte) (int, error) { got = append(got, p...); return len(p), nil }); err != nil {
					t.Fatal(err)
				}
				if want := append(bytes.Clone(data[20:50]), data...); !bytes.Equal(got, want) {
					t.Errorf("%d bytes go back of %d, or others", len(got), len(want))
				}
				until(t, "returned", server.PeerReturned)
			} else {
				until(t, "closed", func() bool { server.Awake(); return server.Err() != nil })
			}
			if n := published(server, slots); n != sent {
				t.Errorf("%d messages of %d have come at the end", n, sent)
			}
			if n := <-passed; n != sent {
				t.Errorf("the shadow's end passes when %d messages of %d have come", n, sent)
			}
		})
	}
}

// Flags that nodes do nothing for, such as OFF, are carried as FALLEN_BACK is, after what was said
// before.
func TestOtherFlag(t *testing.T) {
	_, client, server := pair(t, segment.Config{}, nil)
	const attention, off = 512 + 128, 1 << 7 // SPEC 2.2: of side 0
	if err := send(t, client, []byte("before"), true); err != nil {
		t.Fatal(err)
	}
	client.Segment().Exposed()[attention] |= off
	if err := send(t, client, []byte(" and after"), true); err != nil { // so that the node looks
		t.Fatal(err)
	}
	if got, err := receive(t, server, 16, true); err != nil || string(got) != "before and after" {
		t.Errorf("%q, %v", got, err)
	}
	until(t, "the flag", func() bool { return server.Segment().Exposed()[attention]&off != 0 })
}
