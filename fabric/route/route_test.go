package route

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"exnet/fabric"
	"exnet/fabric/link"
)

type fakePort struct{ link.Port }

func TestPort(t *testing.T) {
	var tab Table
	ids := []fabric.NodeID{0, 1, 1023, 1024, 65535}
	ports := make(map[fabric.NodeID]*fakePort)
	for _, id := range ids {
		if tab.Port(id) != nil {
			t.Fatalf("node %d has a port in an empty table", id)
		}
		ports[id] = &fakePort{}
		tab.Set(id, ports[id])
	}
	for _, id := range ids {
		if tab.Port(id) != link.Port(ports[id]) {
			t.Errorf("node %d: wrong port", id)
		}
	}
	tab.Remove(1024)
	tab.Remove(2048) // never there
	if tab.Port(1024) != nil {
		t.Error("removed node still has a port")
	}
	if tab.Port(1023) == nil {
		t.Error("neighbour of the removed node lost its port")
	}
}

func TestNodeMapAll(t *testing.T) {
	var m NodeMap[int]
	want := []fabric.NodeID{3, 1023, 1024, 40000}
	for _, id := range want {
		v := int(id)
		m.Store(id, &v)
	}
	m.Store(9, nil)
	var got []fabric.NodeID
	for id, v := range m.All() {
		if *v != int(id) {
			t.Errorf("node %d: value %d", id, *v)
		}
		got = append(got, id)
	}
	if !slices.Equal(got, want) {
		t.Errorf("nodes %v, want %v", got, want)
	}
	for range m.All() {
		break
	}
}

func TestGroups(t *testing.T) {
	var tab Table
	for _, n := range []fabric.NodeID{7, 3, 5, 3} {
		if err := tab.Join(4, n); err != nil {
			t.Fatal(err)
		}
	}
	before := tab.Members(4)
	if want := []fabric.NodeID{3, 5, 7}; !slices.Equal(before, want) {
		t.Fatalf("members %v, want %v", before, want)
	}
	if err := tab.Leave(4, 5); err != nil {
		t.Fatal(err)
	}
	if err := tab.Leave(4, 6); err != nil {
		t.Fatal(err)
	}
	if want := []fabric.NodeID{3, 7}; !slices.Equal(tab.Members(4), want) {
		t.Errorf("members %v, want %v", tab.Members(4), want)
	}
	if want := []fabric.NodeID{3, 5, 7}; !slices.Equal(before, want) {
		t.Errorf("a slice handed out has changed to %v", before)
	}
	tab.Remove(3)
	tab.Remove(7)
	if got := tab.Members(4); len(got) != 0 {
		t.Errorf("members %v after the nodes were removed", got)
	}
	if tab.Members(64) != nil || tab.Members(1) != nil {
		t.Error("members of a group that does not exist, or is empty")
	}
	if err := tab.Join(64, 1); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("join group 64: %v", err)
	}
	if err := tab.Leave(64, 1); !errors.Is(err, fabric.ErrInvalid) {
		t.Errorf("leave group 64: %v", err)
	}
}

func TestConcurrentChanges(t *testing.T) {
	var tab Table
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 200 {
				n := fabric.NodeID(i*1000 + j)
				tab.Set(n, &fakePort{})
				_ = tab.Join(fabric.GroupBroadcast, n)
				if tab.Port(n) == nil {
					t.Errorf("node %d has no port", n)
				}
				if j%2 == 0 {
					tab.Remove(n)
				}
			}
		})
	}
	wg.Wait()
	if got := len(tab.Members(fabric.GroupBroadcast)); got != 400 {
		t.Errorf("%d members, want 400", got)
	}
}

func TestOnMulticast(t *testing.T) {
	var tab Table
	if err := tab.Join(4, 7); err != nil {
		t.Fatal(err)
	}
	var calls []string
	tab.Multicast(4, 1) // nobody listens
	tab.OnMulticast(func(g fabric.GroupID, members []fabric.NodeID, n int) {
		calls = append(calls, fmt.Sprint(g, members, n))
	})
	tab.Multicast(4, 120)
	tab.Multicast(5, 8)
	tab.OnMulticast(nil)
	tab.Multicast(4, 2)
	if want := []string{"4 [7] 120", "5 [] 8"}; !slices.Equal(calls, want) {
		t.Errorf("calls %q, want %q", calls, want)
	}
}

// The way to random nodes, of few and of all that there can be.
func BenchmarkPort(b *testing.B) {
	for _, nodes := range []int{8, 512, 65536} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			var tab Table
			for n := range nodes {
				tab.Set(fabric.NodeID(n), &fakePort{})
			}
			var to [1024]fabric.NodeID
			for i := range to {
				to[i] = fabric.NodeID(rand.IntN(nodes))
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if tab.Port(to[i&1023]) == nil {
					b.Fatal("no port")
				}
				i++
			}
		})
	}
}
