package broker

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/wire"
	"exnet/node/rpc/caller"

	"golang.org/x/sys/unix"
)

// A process that keeps who reads its mappings waiting for ever keeps the cutter from no other one,
// and is read again when it answers.
func TestCutterStuck(t *testing.T) {
	proc := t.TempDir()
	pipe := func(pid int) string {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(filepath.Join(dir, "maps"), 0o644); err != nil { // to open it waits for a writer
			t.Fatal(err)
		}
		return filepath.Join(dir, "maps")
	}
	bad, good := owner{account: caller.Account(1000)}, owner{account: caller.Account(1001)}
	connection := func(nonce byte, pid int, of owner) *watched {
		return &watched{nonce: wire.Nonce{nonce}, ends: [2]half{{pid: pid, owner: of}}}
	}
	stuck, other := pipe(10), pipe(11)
	read := make(chan error, 1)
	go func() {
		w, err := os.OpenFile(other, os.O_WRONLY, 0) // until it is read
		if err == nil {
			err = w.Close()
		}
		read <- err
	}()
	c := newCutter(proc)
	c.beginRound()
	if missing := c.markSegments([]*watched{connection(1, 10, bad), connection(2, 11, good)}); len(missing) != 2 {
		t.Errorf("%d have no segment", len(missing))
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
	for range 3 {
		c.beginRound()
		c.markSegments([]*watched{connection(3, 10, bad)})
		if len(c.stuck) != 1 || c.stuck[bad] == nil || c.spent[bad] != 0 {
			t.Fatalf("%d readers wait; it was read for %v", len(c.stuck), c.spent[bad])
		}
	}
	w, err := os.OpenFile(stuck, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close() // it answers
	brokertest.Eventually(t, "it is read again", func() bool {
		c.beginRound()
		return len(c.stuck) == 0
	})
	// What an owner's processes take in a round is bounded.
	c.spent[bad] = cutTime
	begin := time.Now()
	c.markSegments([]*watched{connection(4, 10, bad)})
	if len(c.stuck) != 0 || c.spent[bad] != cutTime {
		t.Errorf("it was read for %v more", time.Since(begin))
	}
}
