package exntun

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/internal/exntun/lab"
	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/internal/tcpbench"
)

func TestMeasureTakesTurns(t *testing.T) {
	var order []string
	values := map[string][]float64{"exn0": {1, 2, 9}, "veth": {4, 40, 5}}
	m := measurement{"test", "Test", "us", func(_ context.Context, p lab.Path, f lab.Family) (float64, error) {
		order = append(order, p.Name)
		v := values[p.Name][0]
		values[p.Name] = values[p.Name][1:]
		return v, nil
	}}
	fig, err := m.measure(t.Context(), lab.Path{Name: "exn0"}, lab.Path{Name: "veth"}, lab.V6, 3)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"exn0", "veth", "veth", "exn0", "exn0", "veth"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	want := figure{
		Measure: "test", label: "Test", Family: "IPv6", Unit: "us",
		Exn: sample{2, 1, 9, 3}, Veth: sample{5, 4, 40, 3}, Ratio: 2.0 / 5,
	}
	if fig != want {
		t.Errorf("got %+v, want %+v", fig, want)
	}
	if got := fig.String(); got != "2.00 us over exn0, 5.00 over veth" {
		t.Error(got)
	}
}

func TestMeasureErrors(t *testing.T) {
	boom := errors.New("boom")
	m := measurement{take: func(_ context.Context, p lab.Path, _ lab.Family) (float64, error) {
		if p.Name == "veth" {
			return 0, boom
		}
		return 1, nil
	}}
	_, err := m.measure(t.Context(), lab.Path{Name: "exn0"}, lab.Path{Name: "veth"}, lab.V4, 1)
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "veth") {
		t.Errorf("%v does not say what failed where", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	if _, err = m.measure(ctx, lab.Path{Name: "exn0"}, lab.Path{Name: "veth"}, lab.V4, 1); !errors.Is(err, errInterrupted) {
		t.Errorf("cancelled: %v, want the cause", err)
	}
}

func TestTakePing(t *testing.T) {
	var trips []time.Duration
	with := lab.Pinger{Name: "fake"}
	with.Ping = pingFake(func() ([]time.Duration, error) { return trips, nil })
	for i := range pingRun.Count {
		trips = append(trips, time.Duration(1+i)*time.Microsecond)
	}
	got, err := takePing(t.Context(), lab.Path{}, lab.V4, with)
	if want := float64(1+pingRun.Count) / 2; err != nil || got != want {
		t.Errorf("median %v, %v; want %v", got, err, want)
	}
	trips = trips[1:]
	if _, err := takePing(t.Context(), lab.Path{}, lab.V4, with); err == nil || !strings.Contains(err.Error(), "10 of 11 requests answered") {
		t.Errorf("one answer missing: %v", err)
	}
}

// TestRootTakeTCP measures over loopback.
func TestRootTakeTCP(t *testing.T) {
	leavesNothing(t)
	ns := netnstest.New(t)
	if err := ns.Run(exec.Command("ip", "link", "set", "lo", "up")); err != nil {
		t.Fatal(err)
	}
	for f, addr := range map[lab.Family]string{lab.V4: "127.0.0.1", lab.V6: "::1"} {
		e := lab.End{NS: ns, Addrs: map[lab.Family]netip.Addr{f: netip.MustParseAddr(addr)}}
		p := lab.Path{Name: "lo", A: e, B: e}
		spec := tcpbench.Spec{Duration: 30 * time.Millisecond, Warmup: 5 * time.Millisecond, Congestion: "cubic"}
		if v, err := takeStream(t.Context(), p, f, spec); err != nil || v < 0.01 || v > 10_000 {
			t.Errorf("%v: stream of %v Gbit/s, %v", f, v, err)
		}
		if v, err := takePingPong(t.Context(), p, f, spec); err != nil || v < 0.1 || v > 100_000 {
			t.Errorf("%v: half round trip of %v us, %v", f, v, err)
		}
		spec.Congestion = "nosuch"
		if _, err := takeStream(t.Context(), p, f, spec); err == nil || !strings.Contains(err.Error(), "nosuch") {
			t.Errorf("unknown congestion control: %v", err)
		}
	}
}

// pingFake makes a pinger's function of one without arguments.
func pingFake(f func() ([]time.Duration, error)) func(context.Context, *netns.NS, netip.Addr, lab.PingSpec) ([]time.Duration, error) {
	return func(context.Context, *netns.NS, netip.Addr, lab.PingSpec) ([]time.Duration, error) { return f() }
}
