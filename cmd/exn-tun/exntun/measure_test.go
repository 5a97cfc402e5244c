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

	"exnet/cmd/exn-tun/internal/lab"
	"exnet/internal/netns/netnstest"
	"exnet/internal/tcpbench"
	"exnet/test/testlab"
)

// threeWays are ways without a path.
func threeWays() ways {
	return ways{way{name: "veth"}, way{name: "exn0"}, &way{name: "direct", direct: true}}
}

func TestMeasureTakesTurns(t *testing.T) {
	for _, faster := range []bool{true, false} {
		var order []string
		taken := 0
		values := map[string][]float64{"exn0": {1, 2, 9}, "veth": {4, 40, 5}, "direct": {50, 20, 10}}
		m := measurement{"test", "Test", "us", faster, func(_ context.Context, w way) (float64, error) {
			order = append(order, w.name)
			v := values[w.name][0]
			values[w.name] = values[w.name][1:]
			return v, nil
		}}
		fig, err := m.measureWays(t.Context(), threeWays(), 3, func() { taken++ })
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Fields("veth exn0 direct exn0 direct veth direct veth exn0"); !slices.Equal(order, want) || taken != len(want) {
			t.Errorf("order %v, want %v; %d taken", order, want, taken)
		}
		want := figure{
			Measure: "test", label: "Test", Family: "IPv4", Unit: "us",
			Exn: sample{2, 1, 9, 3}, Veth: sample{5, 4, 40, 3}, Direct: sample{20, 10, 50, 3}, Ratio: 2.0 / 5, SpeedUp: 4,
		}
		if !faster {
			want.SpeedUp = 0.25
		}
		if fig != want {
			t.Errorf("got %+v, want %+v", fig, want)
		}
		if got := fig.String(); got != "5.00 us over veth, 2.00 over exn0, 20.0 direct" {
			t.Error(got)
		}
	}
}

func TestMeasureErrors(t *testing.T) {
	boom := errors.New("boom")
	m := measurement{take: func(_ context.Context, w way) (float64, error) {
		if w.direct {
			return 0, boom
		}
		return 1, nil
	}}
	_, err := m.measureWays(t.Context(), threeWays(), 1, func() {})
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "direct") {
		t.Errorf("%v does not say what failed where", err)
	}
	on := threeWays()
	on.direct = nil
	if fig, err := m.measureWays(t.Context(), on, 1, func() {}); err != nil || fig.Direct.Runs != 0 || fig.SpeedUp != 0 {
		t.Errorf("without a broker: %+v, %v", fig, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted)
	if _, err = m.measureWays(ctx, threeWays(), 1, func() {}); !errors.Is(err, errInterrupted) {
		t.Errorf("cancelled: %v, want the cause", err)
	}
}

// TestDirectCount: what went over TCP is not called direct.
func TestDirectCount(t *testing.T) {
	for _, c := range []struct {
		c    directCount
		want string // ""; else the error
	}{
		{directCount{Bytes: 3_000_000_000, TCPBytes: 1_000_000, ExnBytes: 150_000_000}, ""},
		{directCount{}, "nothing was measured"},
		{directCount{Bytes: 3_000_000_000, Before: 140_000_000, ExnBytes: 150_000_000}, ""},
		{directCount{Bytes: 3_000_000_000, Before: 1_000_000, TCPBytes: 1_000_000, Kernel: 1_000_000, ExnBytes: 150_000_000}, ""},
		{directCount{Bytes: 3_000_000, Before: 80_000, Kernel: 3_000_000, ExnBytes: 3_100_000}, "TCP carried 3.0 MB by the kernel's count, while 3.0 MB were to go direct"},
	} {
		text, err := c.c.checkDirect()
		switch {
		case c.want == "" && (err != nil || text != "3.00 GB through shared memory, after 0.15 GB over exn0"):
			t.Errorf("%+v: %q, %v", c.c, text, err)
		case c.want != "" && (err == nil || err.Error() != c.want):
			t.Errorf("%+v: %v, want %s", c.c, err, c.want)
		}
	}
}

// TestRootDemoNotDirect: without brokers, and where programs do not use direct sockets although
// they should, the demonstration says so and fails.
func TestRootDemoNotDirect(t *testing.T) {
	testlab.RequireTUN(t)
	leavesNothing(t)
	o, err := parseDemo([]string{"--fair", "--duration", "20ms", "--runs", "1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*ways){
		"no broker":         func(on *ways) { on.direct = nil },
		"TCP called direct": func(on *ways) { on.direct.direct = false },
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs buffer
			d := newDemonstration(program{&out, &errs}, o, nil)
			d.redis = nil
			if d.lab, err = lab.New(o.clusterConfig(), true); err != nil {
				t.Fatal(err)
			}
			defer d.lab.Close()
			veth, err := d.lab.Veth(o.congestion)
			if err != nil {
				t.Fatal(err)
			}
			on := d.firstWays(veth)
			spoil(&on)
			if err := d.measureAll(t.Context(), on); err != nil {
				t.Fatal(err)
			}
			d.report.setOK()
			if !slices.Contains(d.report.failedChecks(), "direct") {
				t.Errorf("failed: %q\n%+v", d.report.failedChecks(), d.report.Checks)
			}
		})
	}
}

// TestRootTakeTCP measures over loopback.
func TestRootTakeTCP(t *testing.T) {
	leavesNothing(t)
	ns := netnstest.New(t)
	if err := ns.Run(exec.Command("ip", "link", "set", "lo", "up")); err != nil {
		t.Fatal(err)
	}
	for f, addr := range map[lab.Family]string{lab.V4: "127.0.0.1"} {
		e := lab.End{NS: ns, Addrs: map[lab.Family]netip.Addr{f: netip.MustParseAddr(addr)}}
		p := lab.Path{Name: "lo", A: e, B: e}
		spec := tcpbench.Spec{Duration: 30 * time.Millisecond, Warmup: 5 * time.Millisecond, Congestion: "cubic"}
		if v, err := takeStream(t.Context(), way{path: p}, spec, nil); err != nil || v < 0.01 || v > 10_000 {
			t.Errorf("%v: stream of %v Gbit/s, %v", f, v, err)
		}
		if v, err := takePingPong(t.Context(), way{path: p}, spec, nil); err != nil || v < 0.1 || v > 100_000 {
			t.Errorf("%v: half round trip of %v us, %v", f, v, err)
		}
		spec.Congestion = "nosuch"
		if _, err := takeStream(t.Context(), way{path: p}, spec, nil); err == nil || !strings.Contains(err.Error(), "nosuch") {
			t.Errorf("unknown congestion control: %v", err)
		}
	}
}
