package ipstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"exnet/exn"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/link/mem"
	"exnet/fabric/nic"
	"exnet/mtu"

	"golang.org/x/sync/errgroup"
)

var _ Link = (*exn.Interface)(nil)

// realPair is two stacks over the real interface, on a fabric in this process.
func realPair(t testing.TB, m mtu.Network, cfgs [2]Config) (stacks [2]*Stack, links [2]*exn.Interface) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	g, ctx := errgroup.WithContext(ctx)
	net := mem.NewFabric()
	var cards [2]*nic.NIC
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range stacks {
		var err error
		cards[i], err = nic.New(nic.Config{Node: fabric.NodeID(1 + i)})
		must(err)
		must(net.Attach(cards[i]))
		links[i], err = exn.New(exn.Config{NIC: cards[i], MTU: m, StallTime: time.Minute, TransferTimeout: time.Minute})
		must(err)
		cfgs[i].Link = links[i]
		stacks[i], err = New(cfgs[i])
		must(err)
		links[i].SetReceiver(stacks[i])
		g.Go(func() error { return links[i].Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		err := g.Wait()
		for i := range stacks {
			err = errors.Join(err, stacks[i].Close(), links[i].Close(), cards[i].Close())
		}
		if err != nil {
			t.Error(err)
		}
	})
	for i, s := range stacks {
		for j := i; j < len(bothFamilies); j += 2 {
			must(s.AddAddress(mustPrefix(bothFamilies[j])))
		}
	}
	return stacks, links
}

func TestTCPOverEXN(t *testing.T) {
	const total = 32 << 20
	for _, m := range []mtu.Network{1500, mtu.Default} {
		for _, target := range []string{"10.2.0.2", "[fd00::2]"} {
			t.Run(fmt.Sprintf("mtu=%v/%s", m, target), func(t *testing.T) {
				stacks, _ := realPair(t, m, [2]Config{})
				l, err := stacks[1].Listen("tcp", ":80")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				data := pattern(1 << 20)
				done := make(chan error, 1)
				go func() {
					c, err := l.Accept()
					if err != nil {
						done <- err
						return
					}
					defer c.Close()
					buf := make([]byte, len(data))
					for range total / len(data) {
						if _, err = io.ReadFull(c, buf); err != nil {
							break
						}
						if !bytes.Equal(buf, data) {
							err = errors.New("data differ")
							break
						}
					}
					done <- err
				}()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				c, err := stacks[0].DialContext(ctx, "tcp", target+":80")
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				start := time.Now()
				for range total / len(data) {
					if _, err := c.Write(data); err != nil {
						t.Fatal(err)
					}
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				took := time.Since(start)
				t.Logf("%.1f Gbit/s", 8*total/took.Seconds()/1e9)
				for name, v := range stacks[0].Stats().All() {
					if v != 0 {
						t.Log(name, v)
					}
				}
			})
		}
	}
}

// TestHostsOverEXN: packets of two hosts, the first while nothing is resolved.
func TestHostsOverEXN(t *testing.T) {
	var hosts [2]fakeHost
	stacks, links := realPair(t, mtu.Default, [2]Config{{Host: &hosts[0]}, {Host: &hosts[1]}})
	const packets = 200
	for _, spec := range []ipSpec{{src: "10.2.0.1", dst: "10.2.0.2"}, {src: "fd00::1", dst: "fd00::2"}} {
		var want [][]byte
		for i := range packets {
			p := udpPacket(spec, pattern(i*300))
			want = append(want, p)
			b := links[0].Alloc()
			for b == nil || links[0].Stopped() {
				links[0].Flush()
				time.Sleep(time.Millisecond)
				if b == nil {
					b = links[0].Alloc()
				}
			}
			b.SetPacket(copy(b.Mem()[exteth.Headroom:], p))
			stacks[0].FromHost(b)
		}
		links[0].Flush()
		var got []hostPacket
		for deadline := time.Now().Add(3 * time.Minute); len(got) < packets && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
			got = append(got, hosts[1].take()...)
		}
		if len(got) != packets {
			t.Fatalf("%d of %d packets", len(got), packets)
		}
		seen := make(map[int]bool)
		for _, g := range got {
			i := (len(g.packet) - len(want[0])) / 300
			seen[i] = true
			if !bytes.Equal(g.packet, want[i]) {
				t.Errorf("packet %d differs", i)
			}
		}
		if len(seen) != packets {
			t.Errorf("%d different packets", len(seen))
		}
	}
	// How many are sent before the neighbour has answered depends on timing.
	if stacks[0].Stats()[FastTx] == 0 {
		t.Error("no packet took the fast path")
	}
}
