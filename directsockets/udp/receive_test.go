package udp

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
	"exnet/directsockets/datagram"
)

// TestBusySender has a sender publish for a while whenever a receiver is about to sleep: its flow
// is over before that costs much.
func TestBusySender(t *testing.T) {
	const arms = 60
	seg, err := datagram.Create(datagram.Info{From: netip.MustParseAddrPort("127.0.0.1:1"), To: netip.MustParseAddrPort("127.0.0.1:2")}, 0)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := datagram.Map(seg.Fd())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	tx := datagram.NewTx(seg, pair[0], 0)
	f := &inflow{rx: datagram.NewRx(peer, pair[1], 0, false), entry: (*connstats.Table)(nil).Alloc(connstats.EntryInfo{})}
	t.Cleanup(func() { f.rx.Close(); tx.Close() })
	say := func(busy byte) {
		if _, err := unix.Pwrite(seg.Fd(), []byte{busy}, busyAt); err != nil {
			t.Error(err)
		}
	}
	in := &inbound{}
	for i := 0; i < arms && !f.rx.Ended(); i++ {
		f.rx.Disarm()
		f.active = true
		in.active = append(in.active, f)
		say(1)
		done := make(chan struct{})
		go func() { defer close(done); time.Sleep(busyTime / 5); say(0) }()
		if _, ok, _ := in.arm(nil, false); ok {
			t.Fatal("it has received something")
		}
		<-done
	}
	if !f.rx.Ended() {
		t.Errorf("the receiver has waited %d times, and goes on", arms)
	}
}

// TestMayWait lets a receiver wait for a busy sender as often and as long as it may.
func TestMayWait(t *testing.T) {
	in := &inbound{}
	now, spent := int64(time.Hour), time.Duration(0)
	const run = 10 * time.Second
	for end := now + int64(run); now < end; {
		most := in.mayWait(now)
		in.credit -= most
		spent += most
		now += int64(most + 100*time.Microsecond)
	}
	if spent > busyMost+run/busyShare || spent < busyMost {
		t.Errorf("%v of %v", spent, run)
	}
	now += int64(run)
	if most := in.mayWait(now); most != busyTime {
		t.Errorf("%v after a rest, not %v", most, busyTime)
	}
}
