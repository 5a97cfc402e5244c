package tcpbench

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"exnet/internal/netns/netnstest"
)

// served runs Serve and returns its address.
func served(t *testing.T) Remote {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, func(s string) { t.Log(s) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return Remote{l.Addr().String()}
}

func TestRemote(t *testing.T) {
	netnstest.CheckFDs(t)
	r := served(t)
	if err := r.Hello(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, k := range []Kind{Stream, Rate, PingPong, CRR} {
		for _, reverse := range []bool{false, true} {
			spec := shortSpec().with(k, 1)
			spec.Reverse = reverse
			got, err := r.Measure(t.Context(), spec)
			if err != nil || got.Bytes <= 0 || got.Elapsed < spec.Duration || got.CPU <= 0 || (got.Latency == nil) != spec.oneWay() {
				t.Errorf("%s, reverse %v: %+v, %v", k, reverse, got, err)
			}
		}
	}
}

func TestRemoteErrors(t *testing.T) {
	netnstest.CheckFDs(t)
	if _, err := (Remote{"127.0.0.1:1"}).Measure(t.Context(), shortSpec()); err == nil || !strings.Contains(err.Error(), "no dsbench serves at 127.0.0.1:1: start \"dsbench serve\" there") {
		t.Errorf("nobody there: %v", err)
	}
	r := served(t)
	bad := shortSpec()
	bad.Size = 0
	if _, err := r.Measure(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "bad job") {
		t.Errorf("size 0: %v", err)
	}
	huge := shortSpec()
	huge.Duration = 2 * time.Hour
	if _, err := r.Measure(t.Context(), huge); err == nil || !strings.Contains(err.Error(), "a server allows no more for others") {
		t.Errorf("two hours: %v", err)
	}
	unknown := shortSpec()
	unknown.Congestion = "nosuch"
	if _, err := r.Measure(t.Context(), unknown); err == nil || !strings.Contains(err.Error(), "congestion control nosuch") {
		t.Errorf("congestion control: %v", err)
	}
	for _, line := range []string{"hello\n", `{"dsbench":99,"job":{}}` + "\n", "{}\n", strings.Repeat("x", 1<<17)} {
		c, err := net.Dial("tcp", r.Addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(line)); err != nil {
			t.Log(err) // it had enough
		}
		_ = c.SetReadDeadline(time.Now().Add(3 * time.Minute))
		var l reply
		if err := json.NewDecoder(c).Decode(&l); err == nil && l.Error == "" {
			t.Errorf("%.20q: reply %+v", line, l)
		}
		c.Close()
	}
	if _, err := r.Measure(t.Context(), shortSpec()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	long := shortSpec()
	long.Duration = time.Minute
	start := time.Now()
	if _, err := r.Measure(ctx, long); err == nil || time.Since(start) > 30*time.Second {
		t.Errorf("cancelled: %v after %v", err, time.Since(start))
	}
}
