package connstats

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"exnet/directsockets/broker/brokertest"
	"exnet/directsockets/broker/wire"
	"exnet/node/rpc"

	"golang.org/x/sys/unix"
)

// Whatever a client writes into its statistics, it is shown as no more than there can
// be, and each once.
func FuzzStats(f *testing.F) {
	s, err := New(3, false)
	if err != nil {
		f.Fatal(err)
	}
	defer s.seg.Retire()
	for i := range 2 {
		e := s.Alloc(EntryInfo{Key: wire.Key{Client: netip.MustParseAddrPort("10.0.0.1:1000"), Server: netip.MustParseAddrPort("[fe80::1]:80")}, Server: i == 1, FD: 7 + i})
		e.Set(ModeDirect, WhyNothing)
	}
	good := bytes.Clone(s.seg.Bytes())
	f.Add(good, uint32(len(good)), uint8(rpc.Seals))
	f.Add(good[:300], uint32(len(good)), uint8(rpc.Seals))
	f.Add(good, uint32(len(good)-1), uint8(rpc.Seals))
	f.Add(good, uint32(len(good)), uint8(unix.F_SEAL_GROW))
	many := bytes.Clone(good)
	copy(many[statsEntriesOff:], []byte{0xff, 0xff, 0xff, 0xff})
	f.Add(many, uint32(1<<20), uint8(rpc.Seals))
	copy(many[statsEntriesOff:], []byte{200, 0, 0, 0})
	f.Add(many, uint32(statsHeaderLen+200*entryLen), uint8(rpc.Seals))
	f.Fuzz(func(t *testing.T, text []byte, size uint32, seals uint8) {
		size %= 1 << 20
		fd := brokertest.File(t, text, int(size), int(seals)&(rpc.Seals|unix.F_SEAL_FUTURE_WRITE))
		defer unix.Close(fd)
		all := read(fd, 40)
		if len(all) > 40 || len(all) > int(size)/entryLen {
			t.Fatalf("%d connections in %d bytes", len(all), size)
		}
		if len(all) > 0 && (int(seals)&rpc.Seals != rpc.Seals || Check(fd) != nil) {
			t.Fatal("shown, though it is no table")
		}
		for i, c := range all {
			if c.DirectSince.After(time.Now()) || c.RingSize > 1<<32-1 {
				t.Fatalf("%+v", c)
			}
			if c.Seq == 0 || c.Seq&1 != 0 || c.Entry < 0 || statsHeaderLen+(c.Entry+1)*entryLen > int(size) {
				t.Fatalf("%+v", c)
			}
			if i > 0 && all[i-1].Entry >= c.Entry {
				t.Fatalf("entry %d after %d", c.Entry, all[i-1].Entry)
			}
		}
	})
}
