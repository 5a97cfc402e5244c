package tcpbench

import (
	"io"
	"net"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/broker/client"
)

// What goes over TCP although it is called direct is in the result, by the kernel's count.
func TestMeterSeesTCP(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	shadow, err := net.Dial("tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	nobody, err := client.Dial(client.Config{Path: t.TempDir() + "/none"}) // so all is TCP's
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	c, err := directsockets.NewConn(shadow, false, directsockets.Config{Broker: nobody})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dc := &directConn{Conn: c}
	// Until it was counted, which is when the kernel has its peer's acknowledgement.
	exchange := func(n int) {
		t.Helper()
		before := dc.overTCP()
		if _, err := c.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(peer, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		for late := time.Now().Add(time.Minute); dc.overTCP() < before+uint64(n); time.Sleep(time.Millisecond) {
			if time.Now().After(late) {
				t.Fatalf("the kernel counts %d of %d bytes", dc.overTCP()-before, n)
			}
		}
		if _, err := peer.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	m := newMeter(time.Now(), job{Spec: Spec{Duration: time.Hour}}, dc, settlingOf(1))
	exchange(1000)
	m.begin(m.sinceBase())
	exchange(50_000)
	m.finish(m.sinceBase())
	if r := sumMeters([]meter{m}); r.Kernel != 100_000 {
		t.Errorf("%d bytes over TCP, want 100000", r.Kernel)
	}
}
