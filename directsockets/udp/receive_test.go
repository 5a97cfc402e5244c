package udp

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/broker/connstats"
)

// TestBusySender has a sender publish for a while whenever a receiver is about to sleep: its flow
// is over before that costs much.
func TestBusySender(t *testing.T) {
	const arms = 60
	seg, _, rx := flow(t, false)
	f := &inflow{rx: rx, entry: (*connstats.Table)(nil).Alloc(connstats.EntryInfo{})}
	say := func(busy byte) {
		if _, err := unix.Pwrite(seg.Fd(), []byte{busy}, busyAt); err != nil {
			t.Error(err)
		}
	}
	in := &inbound{}
	for i := 0; i < arms && !f.rx.Ended(); i++ {
		f.wake(in)
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
