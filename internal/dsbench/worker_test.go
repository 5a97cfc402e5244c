package dsbench

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/internal/netns"
	"exnet/internal/stats"
)

// congestion returns a congestion control that this process may use.
func congestion(t *testing.T) string {
	t.Helper()
	if netns.Privileged() {
		return "cubic"
	}
	list, err := os.ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
	if err != nil {
		t.Skip(err)
	}
	return strings.Fields(string(list))[0]
}

func testJob(t *testing.T, r role) job {
	return job{
		Role: r, Address: netip.MustParseAddrPort("127.0.0.1:0"), Size: 64, Streams: 1,
		Duration: 20 * time.Millisecond, Warmup: 5 * time.Millisecond,
		Congestion: congestion(t), CPU: anyCPU,
	}
}

// pair does a job at either end, the server's first, in this process.
func pair(t *testing.T, client, server job) (c, s jobResult, clientErr, serverErr error) {
	t.Helper()
	listening := make(chan netip.AddrPort, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s, serverErr = doJob(server, func(r reply) error {
			listening <- *r.Listening
			return nil
		})
	}()
	select {
	case client.Address = <-listening:
	case <-done:
		t.Fatal(serverErr)
	}
	c, clientErr = doJob(client, func(reply) error { return nil })
	<-done
	return c, s, clientErr, serverErr
}

func TestWorkerStream(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		for _, streams := range []int{1, 3} {
			for _, size := range []int{1, 131072, 1 << 20} {
				server := testJob(t, roleReceive)
				server.Address, server.Streams, server.Size = netip.MustParseAddrPort(addr), streams, size
				client := server
				client.Role = roleSend
				c, s, clientErr, serverErr := pair(t, client, server)
				if clientErr != nil || serverErr != nil {
					t.Fatalf("%s, %d streams of %d bytes: client %v, server %v", addr, streams, size, clientErr, serverErr)
				}
				if s.Bytes <= 0 || s.Seconds < server.Duration.Seconds() || s.Seconds > 5 || s.CPUSeconds < 0 {
					t.Errorf("%s, %d streams of %d bytes: receiver's result %+v", addr, streams, size, s)
				}
				if c.Bytes <= 0 || c.Seconds <= 0 || c.Seconds > 5 || c.CPUSeconds < 0 {
					t.Errorf("%s, %d streams of %d bytes: sender's result %+v", addr, streams, size, c)
				}
			}
		}
	}
}

func TestWorkerPingPong(t *testing.T) {
	for _, size := range []int{1, 64, 1 << 20} {
		server := testJob(t, roleEcho)
		server.Size = size
		client := server
		client.Role = rolePing
		client.Duration = 50 * time.Millisecond
		c, s, clientErr, serverErr := pair(t, client, server)
		if clientErr != nil || serverErr != nil {
			t.Fatalf("%d bytes: client %v, server %v", size, clientErr, serverErr)
		}
		if n := c.RoundTrips.Count(); n < 1 || c.Bytes != n*int64(size) {
			t.Errorf("%d bytes: %d round trips, %d bytes", size, n, c.Bytes)
		}
		// The echo counts the warm-up too.
		if s.Bytes < c.Bytes || s.Bytes%int64(size) != 0 {
			t.Errorf("%d bytes: %d sent, %d echoed", size, c.Bytes, s.Bytes)
		}
		if p := c.RoundTrips.Quantile(0.5); p < time.Microsecond || p > time.Second {
			t.Errorf("%d bytes: median round trip %v", size, p)
		}
	}
}

func TestWorkerBindsToCPU(t *testing.T) {
	cpus := allowedCPUs()
	server := testJob(t, roleEcho)
	server.CPU = cpus[0]
	client := server
	client.Role, client.CPU = rolePing, cpus[len(cpus)-1]
	if _, _, clientErr, serverErr := pair(t, client, server); clientErr != nil || serverErr != nil {
		t.Errorf("client %v, server %v", clientErr, serverErr)
	}
	client.CPU = 1000
	_, _, err, serverErr := pair(t, client, server)
	if err == nil || !strings.Contains(err.Error(), "binding to CPU 1000") || serverErr != nil {
		t.Errorf("on CPU 1000: client %v, server %v", err, serverErr)
	}
	if !slices.Equal(allowedCPUs(), cpus) {
		t.Error("a worker's binding reached another thread")
	}
}

func TestWorkerPeerEndsEarly(t *testing.T) {
	t.Run("sender", func(t *testing.T) {
		server := testJob(t, roleReceive)
		server.Duration = 10 * time.Second
		listening := make(chan netip.AddrPort, 1)
		failed := make(chan error, 1)
		go func() {
			_, err := doJob(server, func(r reply) error {
				listening <- *r.Listening
				return nil
			})
			failed <- err
		}()
		s, err := connect(<-listening, server.Congestion)
		if err != nil {
			t.Fatal(err)
		}
		s.close()
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "the sender ended early") {
			t.Errorf("receiver: %v", err)
		}
	})
	t.Run("receiver", func(t *testing.T) {
		client := testJob(t, roleSend)
		client.Duration = 10 * time.Second
		_, _, clientErr, serverErr := pair(t, client, testJob(t, roleReceive))
		if clientErr == nil || !strings.Contains(clientErr.Error(), "the receiver ended early") {
			t.Errorf("sender: %v", clientErr)
		}
		if serverErr != nil {
			t.Errorf("receiver: %v", serverErr)
		}
	})
}

func TestWorkerErrors(t *testing.T) {
	good := testJob(t, rolePing)
	tests := []struct {
		name   string
		change func(*job)
		want   string
	}{
		{"no role", func(j *job) { j.Role = "" }, `unknown role ""`},
		{"no size", func(j *job) { j.Size = 0 }, "bad job"},
		{"no streams", func(j *job) { j.Streams = 0 }, "bad job"},
		{"no duration", func(j *job) { j.Duration = 0 }, "bad job"},
		{"no address", func(j *job) { j.Address = netip.AddrPort{} }, "no address"},
		{"nobody there", func(j *job) { j.Address = netip.MustParseAddrPort("127.0.0.1:1") }, "connecting to 127.0.0.1:1: connection refused"},
		{"not our address", func(j *job) { j.Role, j.Address = roleEcho, netip.MustParseAddrPort("192.0.2.1:0") }, "listening on 192.0.2.1:0: cannot assign"},
		{"congestion control", func(j *job) { j.Congestion = "nope" }, "congestion control nope is unknown here: choose with --congestion"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := good
			tt.change(&j)
			_, err := doJob(j, func(reply) error { return nil })
			if tt.name == "congestion control" && !netns.Privileged() {
				tt.want = "congestion control nope"
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestRunWorker(t *testing.T) {
	server := testJob(t, roleEcho)
	in, toWorker := io.Pipe()
	fromWorker, out := io.Pipe()
	eof := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- runWorker(in, out, func() { close(eof) }) }()
	if err := json.NewEncoder(toWorker).Encode(server); err != nil {
		t.Fatal(err)
	}
	replies := json.NewDecoder(fromWorker)
	var r reply
	if err := replies.Decode(&r); err != nil || r.Listening == nil || r.Listening.Port() == 0 {
		t.Fatalf("first reply %+v, %v", r, err)
	}
	s, err := connect(*r.Listening, server.Congestion)
	if err != nil {
		t.Fatal(err)
	}
	s.close()
	r = reply{}
	if err := replies.Decode(&r); err != nil || r.Result == nil || r.Listening != nil || r.Error != "" {
		t.Fatalf("second reply %+v, %v", r, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	toWorker.Close()
	<-eof
}

func TestRunWorkerBadInput(t *testing.T) {
	for _, line := range []string{"", "{", "hello\n", `{"role":7}` + "\n"} {
		err := runWorker(strings.NewReader(line), io.Discard, func() {})
		if err == nil || !strings.Contains(err.Error(), "reading the job") {
			t.Errorf("job %q: %v", line, err)
		}
	}
	eof := make(chan struct{})
	var out strings.Builder
	if err := runWorker(strings.NewReader(`{"role":"echo"}`), &out, func() { close(eof) }); err != nil {
		t.Error(err)
	}
	<-eof
	if !strings.HasPrefix(out.String(), `{"error":"bad job`) {
		t.Errorf("reply %q", out.String())
	}
}

// TestJobLines pins the line protocol.
func TestJobLines(t *testing.T) {
	j := job{
		Role: roleSend, Address: netip.MustParseAddrPort("10.0.0.2:40001"), Size: 64, Streams: 2,
		Duration: time.Second, Warmup: time.Millisecond, Congestion: "cubic", CPU: anyCPU,
	}
	listening := netip.MustParseAddrPort("[fe80::1]:5")
	tests := []struct {
		line any
		want string
	}{
		{j, `{"role":"send","address":"10.0.0.2:40001","size":64,"streams":2,` +
			`"duration_ns":1000000000,"warmup_ns":1000000,"congestion":"cubic","cpu":-1}`},
		{reply{Listening: &listening}, `{"listening":"[fe80::1]:5"}`},
		{reply{Error: "no"}, `{"error":"no"}`},
		{reply{Result: &jobResult{Bytes: 5, Seconds: 0.5, CPUSeconds: 0.25}}, `{"result":{"bytes":5,"seconds":0.5,"cpu_seconds":0.25}}`},
	}
	for _, tt := range tests {
		got, err := json.Marshal(tt.line)
		if err != nil || string(got) != tt.want {
			t.Errorf("line %s, %v\nwant %s", got, err, tt.want)
		}
	}
	h := stats.NewHistogram()
	h.Record(time.Millisecond)
	text, err := json.Marshal(reply{Result: &jobResult{RoundTrips: h}})
	if err != nil {
		t.Fatal(err)
	}
	var back reply
	if err := json.Unmarshal(text, &back); err != nil || back.Result.RoundTrips.Count() != 1 {
		t.Errorf("a histogram came back as %+v, %v", back, err)
	}
}

func TestBound(t *testing.T) {
	spec := Spec{Duration: time.Second}
	killed := errors.New("a worker ended without a result")
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		return killed
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cut := errors.New("cable cut")
	cancel(cut)
	if err := spec.bound(ctx, wait); err != cut {
		t.Errorf("error %v, want the reason of the end", err)
	}
	if err := spec.bound(t.Context(), func(context.Context) error { return killed }); err != killed {
		t.Errorf("error %v, want the worker's", err)
	}
	spec.Warmup = -spec.timeout() // the time is over
	want := "no result within 0s: the path does not pass data"
	if err := spec.bound(t.Context(), wait); err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}
