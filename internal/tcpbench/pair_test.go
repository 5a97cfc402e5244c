package tcpbench

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/internal/netns"
	"exnet/internal/netns/netnstest"
	"exnet/test/testlab"
)

// local is a pair of ends on the loopback interface of ns.
func local(ns *netns.NS, addr string) *Pair {
	e := End{NS: ns, Addr: netip.MustParseAddr(addr)}
	return Between(e, e)
}

func shortSpec() Spec {
	return Spec{
		Kind: Stream, Size: 4096, Streams: 1, Duration: 20 * time.Millisecond, Warmup: 5 * time.Millisecond,
		Congestion: congestion, CPUs: Anywhere(),
	}
}

// with returns spec for something else.
func (s Spec) with(k Kind, streams int) Spec {
	s.Kind, s.Streams = k, streams
	return s
}

// measure takes a measurement of every kind.
func measure(t *testing.T, p *Pair, spec Spec) {
	t.Helper()
	for _, k := range []Kind{Stream, Rate, PingPong, CRR} {
		for _, streams := range []int{1, 2} {
			if k == PingPong && streams > 1 {
				continue
			}
			spec := spec.with(k, streams)
			r, err := p.Measure(t.Context(), spec)
			if err != nil || r.Bytes <= 0 || r.Elapsed < spec.Duration || r.Elapsed > 30*time.Second || r.CPU <= 0 {
				t.Errorf("%s, %d at once: %+v, %v", k, streams, r, err)
			}
			if latency := err == nil && r.Latency != nil; latency == spec.oneWay() ||
				latency && r.Latency.Quantile(0.5) < time.Microsecond {
				t.Errorf("%s, %d at once: latency %v", k, streams, r.Latency)
			}
		}
	}
}

func TestPair(t *testing.T) {
	netnstest.CheckFDs(t)
	for _, cpus := range []Placement{Anywhere(), Apart()} {
		spec := shortSpec()
		spec.CPUs = cpus
		measure(t, local(nil, "127.0.0.1"), spec)
	}
}

func TestPairGoNet(t *testing.T) {
	netnstest.CheckFDs(t)
	spec := shortSpec()
	spec.Transport = GoNet
	measure(t, local(nil, "127.0.0.1"), spec)
	spec.CPUs = Apart()
	measure(t, local(nil, "::1"), spec)
}

// Unix sockets are measured as TCP is, also where the first name is taken.
func TestPairUnix(t *testing.T) {
	netnstest.CheckFDs(t)
	spec := shortSpec()
	spec.Transport = Unix
	measure(t, local(nil, "127.0.0.1"), spec)
	spec.CPUs, spec.Buffers = Apart(), 64<<10
	measure(t, local(nil, "127.0.0.1"), spec)
}

func TestUnixNameTaken(t *testing.T) {
	j := job{Spec: shortSpec(), Address: netip.MustParseAddrPort("127.0.0.1:0")}
	l, addr, err := listenUnix(j, 65535)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other, next, err := listenUnix(j, addr.Port())
	if err != nil || next == addr {
		t.Fatalf("%v after %v, %v", next, addr, err)
	}
	defer other.Close()
	j.Transport, j.Address = Unix, netip.AddrPortFrom(addr.Addr(), 1)
	if _, err := transports[Unix].dial(j); err == nil || !strings.Contains(err.Error(), "connecting to Unix socket 127.0.0.1:1: ") {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestRootPairInNamespace(t *testing.T) {
	ns := testlab.LoopbackNS(t)
	netnstest.CheckFDs(t)
	spec := shortSpec()
	spec.CPUs = Apart()
	measure(t, local(ns, "127.0.0.1"), spec)
	measure(t, local(ns, "::1"), spec)
}

// TestPairCountsCarriers: what carries the packets is part of the path. It is
// given so often that no other process could use as much.
func TestPairCountsCarriers(t *testing.T) {
	carrier := exec.Command("/bin/sh", "-c", "while :; do :; done")
	if err := carrier.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		carrier.Process.Kill()
		carrier.Wait()
	}()
	cpus := len(AllowedCPUs())
	p := local(nil, "127.0.0.1")
	p = Between(p.client, p.server, slices.Repeat([]int{carrier.Process.Pid}, 100*cpus)...)
	spec := shortSpec()
	spec.Duration = 200 * time.Millisecond
	for _, spec := range []Spec{spec, spec.with(PingPong, 1)} {
		var r Result
		var err error
		for range 20 { // a busy machine may not let it run meanwhile
			if r, err = p.Measure(t.Context(), spec); err != nil || r.CPU >= float64(cpus) {
				break
			}
		}
		if err != nil || r.CPU < float64(cpus) {
			t.Errorf("%s %+v, %v", spec.Kind, r, err)
		}
	}
}

// TestPairCancelled: the processes go with the context, whose cause is the error.
func TestPairCancelled(t *testing.T) {
	netnstest.CheckFDs(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cut := errors.New("cable cut")
	time.AfterFunc(100*time.Millisecond, func() { cancel(cut) })
	spec := shortSpec()
	spec.Duration = time.Minute
	start := time.Now()
	_, err := local(nil, "127.0.0.1").Measure(ctx, spec)
	if err != cut || time.Since(start) > 30*time.Second {
		t.Errorf("%v after %v, want %v", err, time.Since(start), cut)
	}
}

// TestRootPairUnreachable: the error is that of the end that could not connect,
// not that its peer was killed.
func TestRootPairUnreachable(t *testing.T) {
	client, server := testlab.LoopbackNS(t), testlab.LoopbackNS(t)
	netnstest.CheckFDs(t)
	lo := netip.MustParseAddr("127.0.0.1")
	_, err := Between(End{client, lo}, End{server, lo}).Measure(t.Context(), shortSpec())
	if err == nil || !strings.Contains(err.Error(), "connecting to 127.0.0.1") {
		t.Errorf("%v, want why there is no connection", err)
	}
}

func TestPairErrors(t *testing.T) {
	netnstest.CheckFDs(t)
	spec := shortSpec()
	spec.Congestion = "nosuch"
	if _, err := local(nil, "127.0.0.1").Measure(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "congestion control nosuch") {
		t.Errorf("unknown congestion control: %v", err)
	}
	spec = shortSpec()
	spec.CPUs.Client = 1000
	if _, err := local(nil, "127.0.0.1").Measure(t.Context(), spec.with(PingPong, 1)); err == nil || !strings.Contains(err.Error(), "binding to CPU 1000") {
		t.Errorf("no such CPU: %v", err)
	}
}
