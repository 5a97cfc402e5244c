package hostnet_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"exnet/internal/netns/netnstest"
	"exnet/node/hostnet"
)

// short is an event in a form that a table can hold.
func short(e hostnet.Event) string {
	switch e.Kind {
	case hostnet.AddrAdded, hostnet.AddrRemoved:
		return fmt.Sprintf("%v %v", e.Kind, e.Addr)
	case hostnet.RouteAdded, hostnet.RouteRemoved:
		s := fmt.Sprintf("%v %v", e.Kind, e.Route.Dst)
		if e.Route.Gateway.IsValid() {
			s += fmt.Sprintf(" via %v", e.Route.Gateway)
		}
		return s
	case hostnet.LinkChanged:
		return fmt.Sprintf("%v %s mtu %d up %t", e.Kind, e.Link.Name, e.Link.MTU, e.Link.Up)
	}
	return e.Kind.String()
}

func TestRootWatch(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	c := open(t, n)
	link := tunIn(t, n, c)
	if err := c.Configure(link.Index, hostnet.LinkConfig{MTU: 9000, NoAutoLinkLocal: true, Addrs: prefixes("10.2.0.8/24")}); err != nil {
		t.Fatal(err)
	}
	events := make(chan string, 100)
	w, err := c.Watch(link.Index, func(e hostnet.Event) { events <- short(e) })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	expect := func(what string, want ...string) {
		t.Helper()
		var got []string
		timeout := time.After(3 * time.Minute)
		for len(got) < len(want) {
			select {
			case e := <-events:
				got = append(got, e)
			case <-timeout:
				t.Fatalf("%s: got only %q", what, got)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	expect("what was there",
		"link changed exn0 mtu 9000 up true",
		"address added 10.2.0.8/24",
		"route added 10.2.0.0/24")
	for _, step := range []struct {
		command string
		want    []string
	}{
		{"ip addr add 10.3.0.1/32 dev exn0", []string{"address added 10.3.0.1/32"}},
		{"ip addr add fd00::1/128 dev exn0", []string{"IPv6 on", "address added fd00::1/128", "route added fd00::1/128"}},
		{"ip route add 10.4.0.0/16 via 10.2.0.1 dev exn0", []string{"route added 10.4.0.0/16 via 10.2.0.1"}},
		{"ip route add default dev exn0", []string{"route added 0.0.0.0/0"}},
		{"ip route add default via fd00::2 dev exn0 onlink", []string{"route added ::/0 via fd00::2"}},
		{"ip route del 10.4.0.0/16", []string{"route removed 10.4.0.0/16 via 10.2.0.1"}},
		{"ip addr del 10.3.0.1/32 dev exn0", []string{"address removed 10.3.0.1/32"}},
		{"ip link set lo up", nil}, // another interface
		{"ip addr add 10.5.0.1/24 dev lo", nil},
		{"ip link set exn0 mtu 1500", []string{"link changed exn0 mtu 1500 up true"}},
	} {
		run(t, n, step.command)
		expect(step.command, step.want...)
	}
	// With the interface, IPv4 routes go without a message.
	run(t, n, "ip link set exn0 down")
	seen := make(map[string]bool)
	for !seen["route removed 0.0.0.0/0"] || !seen["route removed 10.2.0.0/24"] || !seen["link changed exn0 mtu 1500 up false"] {
		select {
		case e := <-events:
			seen[e] = true
		case <-time.After(3 * time.Minute):
			t.Fatalf("down: saw only %v", seen)
		}
	}
	run(t, n, "ip link del exn0")
	select {
	case <-w.Done():
	case <-time.After(3 * time.Minute):
		t.Fatal("watching an interface that is gone")
	}
	if err := w.Err(); !errors.Is(err, hostnet.ErrNoLink) {
		t.Errorf("ended with %v, want %v", err, hostnet.ErrNoLink)
	}
	var last string
	for len(events) > 0 {
		last = <-events
	}
	if last != "link removed" {
		t.Errorf("last event %q", last)
	}
}

// An interface that is up again when the watcher looks was down nevertheless: it
// lost its IPv6 addresses.
func TestRootWatchShortDown(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	c := open(t, n)
	link := tunIn(t, n, c)
	if err := c.Configure(link.Index, hostnet.LinkConfig{}); err != nil {
		t.Fatal(err)
	}
	entered, release := make(chan bool), make(chan bool)
	links := make(chan bool, 100)
	w, err := c.Watch(link.Index, func(e hostnet.Event) {
		switch e.Kind {
		case hostnet.AddrAdded:
			if e.Addr == prefixes("10.2.0.8/24")[0] {
				entered <- true
				<-release
			}
		case hostnet.LinkChanged:
			links <- e.Link.Up
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if !<-links {
		t.Fatal("not up")
	}
	run(t, n, "ip addr add 10.2.0.8/24 dev exn0")
	<-entered
	run(t, n, "ip link set exn0 down")
	run(t, n, "ip link set exn0 up")
	release <- true
	for _, want := range []bool{false, true} {
		select {
		case got := <-links:
			if got != want {
				t.Fatalf("up %t reported, want %t", got, want)
			}
		case <-time.After(3 * time.Minute):
			t.Fatalf("up %t was not reported", want)
		}
	}
}

// What was reported adds up to what is there, also when the kernel had to throw
// messages away because the callback was slow.
func TestRootWatchAddsUp(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	c := open(t, n)
	link := tunIn(t, n, c)
	if err := c.Configure(link.Index, hostnet.LinkConfig{NoAutoLinkLocal: true}); err != nil {
		t.Fatal(err)
	}
	last := netip.MustParsePrefix("10.1.0.1/32")
	have := make(map[netip.Prefix]bool)
	release, done := make(chan struct{}), make(chan struct{})
	w, err := c.Watch(link.Index, func(e hostnet.Event) {
		switch e.Kind {
		case hostnet.LinkChanged:
			if e.Link.MTU == 1400 {
				<-release
			}
		case hostnet.AddrAdded:
			if have[e.Addr] {
				t.Errorf("%v added twice", e.Addr)
			}
			have[e.Addr] = true
			if e.Addr == last {
				close(done)
			}
		case hostnet.AddrRemoved:
			if !have[e.Addr] {
				t.Errorf("%v removed, and was not there", e.Addr)
			}
			delete(have, e.Addr)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	batch := exec.CommandContext(t.Context(), "ip", "-batch", "-")
	var lines strings.Builder
	lines.WriteString("link set exn0 mtu 1400\n")
	for i := range 200 {
		fmt.Fprintf(&lines, "addr add 10.0.%d.1/32 dev exn0\n", i)
		if i%2 == 0 {
			fmt.Fprintf(&lines, "addr del 10.0.%d.1/32 dev exn0\n", i/2)
		}
	}
	fmt.Fprintf(&lines, "addr add %v dev exn0\n", last)
	batch.Stdin = strings.NewReader(lines.String())
	if err := n.Run(batch); err != nil {
		t.Fatal(err)
	}
	close(release)
	select {
	case <-done:
	case <-time.After(3 * time.Minute):
		t.Fatal("the last address was not reported")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	want, err := c.Addrs(link.Index)
	got := slices.SortedFunc(maps.Keys(have), netip.Prefix.Compare)
	if err != nil || !slices.Equal(got, want) || len(want) != 101 {
		t.Errorf("reported %v, there is %v (%v)", got, want, err)
	}
}

func TestRootWatchClose(t *testing.T) {
	netnstest.CheckFDs(t)
	n := netnstest.New(t)
	c := open(t, n)
	called := 0 // not atomic: -race sees a call after Close
	w, err := c.Watch(1, func(hostnet.Event) { called++ })
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Err(); err != nil {
		t.Errorf("while watching: %v", err)
	}
	c.Close() // is not the watcher's
	run(t, n, "ip link set lo up")
	for range 2 {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	before := called
	run(t, n, "ip link set lo down")
	if err := w.Err(); err != nil || called != before || called == 0 {
		t.Errorf("%v, called %d times, then %d", err, before, called)
	}
}

func TestRootWatchNoLink(t *testing.T) {
	netnstest.CheckFDs(t)
	c := open(t, netnstest.New(t))
	_, err := c.Watch(4711, func(e hostnet.Event) { t.Error("called with", e) })
	if !errors.Is(err, hostnet.ErrNoLink) {
		t.Errorf("got %v, want %v", err, hostnet.ErrNoLink)
	}
}

func TestEventKindString(t *testing.T) {
	for k, want := range map[hostnet.EventKind]string{
		0: "EventKind(0)", hostnet.AddrAdded: "address added", hostnet.LinkRemoved: "link removed",
		hostnet.LinkRemoved + 1: "EventKind(9)",
	} {
		if got := k.String(); got != want {
			t.Errorf("%d: %q, want %q", uint8(k), got, want)
		}
	}
}
