package exntun

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/internal/netns"
	"exnet/internal/tcpbench"
)

func TestMeasureTakesTurns(t *testing.T) {
	var order []string
	values := map[string][]float64{"exn0": {1, 2, 9}, "veth": {4, 40, 5}}
	m := measurement{"test", "Test", "us", func(_ context.Context, p path, f family) (float64, error) {
		order = append(order, p.name)
		v := values[p.name][0]
		values[p.name] = values[p.name][1:]
		return v, nil
	}}
	fig, err := m.measure(t.Context(), path{name: "exn0"}, path{name: "veth"}, v6, 3)
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
	m := measurement{take: func(_ context.Context, p path, _ family) (float64, error) {
		if p.name == "veth" {
			return 0, boom
		}
		return 1, nil
	}}
	_, err := m.measure(t.Context(), path{name: "exn0"}, path{name: "veth"}, v4, 1)
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "veth") {
		t.Errorf("%v does not say what failed where", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	if _, err = m.measure(ctx, path{name: "exn0"}, path{name: "veth"}, v4, 1); !errors.Is(err, errInterrupted) {
		t.Errorf("cancelled: %v, want the cause", err)
	}
}

func TestTakePing(t *testing.T) {
	var trips []time.Duration
	with := pinger{"fake", nil}
	with.ping = pingFake(func() ([]time.Duration, error) { return trips, nil })
	for i := range pingRun.count {
		trips = append(trips, time.Duration(1+i)*time.Microsecond)
	}
	got, err := takePing(t.Context(), path{}, v4, with)
	if want := float64(1+pingRun.count) / 2; err != nil || got != want {
		t.Errorf("median %v, %v; want %v", got, err, want)
	}
	trips = trips[1:]
	if _, err := takePing(t.Context(), path{}, v4, with); err == nil || !strings.Contains(err.Error(), "10 of 11 requests answered") {
		t.Errorf("one answer missing: %v", err)
	}
}

// TestRootTakeTCP measures over loopback.
func TestRootTakeTCP(t *testing.T) {
	leavesNothing(t)
	ns := loopbackNS(t)
	for f, addr := range map[family]string{v4: "127.0.0.1", v6: "::1"} {
		e := end{ns, map[family]netip.Addr{f: netip.MustParseAddr(addr)}}
		p := path{"lo", e, e}
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
func pingFake(f func() ([]time.Duration, error)) func(context.Context, *netns.NS, netip.Addr, pingSpec) ([]time.Duration, error) {
	return func(context.Context, *netns.NS, netip.Addr, pingSpec) ([]time.Duration, error) { return f() }
}
