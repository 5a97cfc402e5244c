package tcpbench

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"exnet/internal/netns/netnstest"
)

// inProcess measures over the net package's connections.
func inProcess(t *testing.T, spec Spec) (Result, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return InProcess(spec,
		func() (io.ReadWriteCloser, error) { return net.Dial("tcp", l.Addr().String()) },
		func() (io.ReadWriteCloser, error) { return l.Accept() }, l.Close)
}

func TestInProcess(t *testing.T) {
	for _, k := range []Kind{Stream, Rate, PingPong, CRR} {
		for _, streams := range []int{1, 3} {
			if k == PingPong && streams > 1 {
				continue
			}
			netnstest.CheckFDs(t)
			spec := shortSpec().with(k, streams)
			r, err := inProcess(t, spec)
			if err != nil || r.Bytes <= 0 || r.Elapsed < spec.Duration || r.Elapsed > 30*time.Second || r.CPU <= 0 ||
				!spec.oneWay() && r.Latency.Quantile(0.5) < time.Microsecond {
				t.Errorf("%s, %d at once: %+v, %v", k, streams, r, err)
			}
		}
	}
}

// A rest comes before each message, and is not part of what the message takes.
func TestRest(t *testing.T) {
	spec := shortSpec().with(PingPong, 1)
	spec.Rest, spec.Duration = 20*time.Millisecond, 200*time.Millisecond
	r, err := inProcess(t, spec)
	if err != nil {
		t.Fatal(err)
	}
	if most := int64(r.Elapsed / spec.Rest); r.Latency.Count() > most || r.Latency.Quantile(0) >= spec.Rest {
		t.Errorf("%d round trips in %v with %v before each, want at most %d; the fastest took %v",
			r.Latency.Count(), r.Elapsed, spec.Rest, most, r.Latency.Quantile(0))
	}
	spec.Rest = -1
	if _, err := inProcess(t, spec); err == nil || !strings.Contains(err.Error(), "bad job") {
		t.Errorf("a negative rest: %v", err)
	}
}

func TestInProcessErrors(t *testing.T) {
	netnstest.CheckFDs(t)
	if _, err := inProcess(t, Spec{}); err == nil || !strings.Contains(err.Error(), "bad job") {
		t.Errorf("nothing: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("no route")
	_, err = InProcess(shortSpec(),
		func() (io.ReadWriteCloser, error) { return nil, refused },
		func() (io.ReadWriteCloser, error) { return l.Accept() }, l.Close)
	if err == nil {
		t.Error("no error from a stream without a sender")
	}
}
