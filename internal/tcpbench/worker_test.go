package tcpbench

import (
	"bytes"
	"encoding/json"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/internal/netns"
	"exnet/internal/stats"
)

// testJob is the listening end's.
func testJob(k Kind) job {
	return job{
		Spec: Spec{
			Kind: k, Size: 64, Streams: 1,
			Duration: 20 * time.Millisecond, Warmup: 5 * time.Millisecond,
			Congestion: congestion,
		},
		Listens: true, Address: netip.MustParseAddrPort("127.0.0.1:0"), CPU: AnyCPU,
	}
}

// pair does a job at either end, the server's first, in this process.
func pair(t *testing.T, client, server job) (c, s jobResult, clientErr, serverErr error) {
	t.Helper()
	listening := make(chan netip.AddrPort, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s, serverErr = server.do(func(v any) error {
			listening <- v.(netip.AddrPort)
			return nil
		})
	}()
	select {
	case client.Address = <-listening:
	case <-done:
		t.Fatal(serverErr)
	}
	c, clientErr = client.do(nil)
	<-done
	return c, s, clientErr, serverErr
}

func TestWorkerStream(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		for _, streams := range []int{1, 3} {
			for _, size := range []int{1, 131072, 1 << 20} {
				server := testJob(Stream)
				server.Address, server.Streams, server.Size = netip.MustParseAddrPort(addr), streams, size
				var c, s jobResult
				// On a busy machine an end may not have the processor for a whole measurement.
				for d := server.Duration; (c.Bytes <= 0 || s.Bytes <= 0) && d < time.Minute; d *= 10 {
					server.Duration = d
					client := server
					client.Listens = false
					var clientErr, serverErr error
					if c, s, clientErr, serverErr = pair(t, client, server); clientErr != nil || serverErr != nil {
						t.Fatalf("%s, %d streams of %d bytes: client %v, server %v", addr, streams, size, clientErr, serverErr)
					}
				}
				if s.Bytes <= 0 || s.Seconds < server.Duration.Seconds() || s.CPUSeconds < 0 {
					t.Errorf("%s, %d streams of %d bytes: receiver's result %+v", addr, streams, size, s)
				}
				if c.Bytes <= 0 || c.Seconds <= 0 || c.CPUSeconds < 0 {
					t.Errorf("%s, %d streams of %d bytes: sender's result %+v", addr, streams, size, c)
				}
			}
		}
	}
}

func TestWorkerPingPong(t *testing.T) {
	for _, size := range []int{1, 64, 1 << 20} {
		server := testJob(PingPong)
		server.Size = size
		client := server
		client.Listens = false
		client.Duration = 50 * time.Millisecond
		c, s, clientErr, serverErr := pair(t, client, server)
		if clientErr != nil || serverErr != nil {
			t.Fatalf("%d bytes: client %v, server %v", size, clientErr, serverErr)
		}
		if n := c.Latency.Count(); n < 1 || c.Bytes != n*int64(size) {
			t.Errorf("%d bytes: %d round trips, %d bytes", size, n, c.Bytes)
		}
		// The echo counts the warm-up too.
		if s.Bytes < c.Bytes || s.Bytes%int64(size) != 0 {
			t.Errorf("%d bytes: %d sent, %d echoed", size, c.Bytes, s.Bytes)
		}
		if p := c.Latency.Quantile(0.5); p < time.Microsecond || p > time.Second {
			t.Errorf("%d bytes: median round trip %v", size, p)
		}
	}
}

func TestWorkerBindsToCPU(t *testing.T) {
	cpus := AllowedCPUs()
	server := testJob(PingPong)
	server.CPU = cpus[0]
	client := server
	client.Listens, client.CPU = false, cpus[len(cpus)-1]
	if _, _, clientErr, serverErr := pair(t, client, server); clientErr != nil || serverErr != nil {
		t.Errorf("client %v, server %v", clientErr, serverErr)
	}
	client.CPU = 1000
	_, _, err, serverErr := pair(t, client, server)
	if err == nil || !strings.Contains(err.Error(), "binding to CPU 1000") || serverErr != nil {
		t.Errorf("on CPU 1000: client %v, server %v", err, serverErr)
	}
	if !slices.Equal(AllowedCPUs(), cpus) {
		t.Error("a worker's binding reached another thread")
	}
}

func TestWorkerPeerEndsEarly(t *testing.T) {
	t.Run("sender", func(t *testing.T) {
		server := testJob(Stream)
		server.Duration = 10 * time.Second
		listening := make(chan netip.AddrPort, 1)
		failed := make(chan error, 1)
		go func() {
			_, err := server.do(func(v any) error {
				listening <- v.(netip.AddrPort)
				return nil
			})
			failed <- err
		}()
		s, err := connectTo(<-listening, server.socketOptions())
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "the sender ended early") {
			t.Errorf("receiver: %v", err)
		}
	})
	t.Run("receiver", func(t *testing.T) {
		client := testJob(Stream)
		client.Listens, client.Duration = false, 10*time.Second
		_, _, clientErr, serverErr := pair(t, client, testJob(Stream))
		if clientErr == nil || !strings.Contains(clientErr.Error(), "the receiver ended early") {
			t.Errorf("sender: %v", clientErr)
		}
		if serverErr != nil {
			t.Errorf("receiver: %v", serverErr)
		}
	})
}

func TestWorkerErrors(t *testing.T) {
	good := testJob(PingPong)
	good.Listens = false
	tests := []struct {
		name   string
		change func(*job)
		want   string
	}{
		{"no kind", func(j *job) { j.Kind = "" }, `unknown kind ""`},
		{"no transport", func(j *job) { j.Transport = "pigeon" }, `unknown transport "pigeon"`},
		{"two round trips at once", func(j *job) { j.Streams = 2 }, "bad job"},
		{"no size", func(j *job) { j.Size = 0 }, "bad job"},
		{"no streams", func(j *job) { j.Streams = 0 }, "bad job"},
		{"no duration", func(j *job) { j.Duration = 0 }, "bad job"},
		{"no address", func(j *job) { j.Address = netip.AddrPort{} }, "no address"},
		{"nobody there", func(j *job) { j.Address = netip.MustParseAddrPort("127.0.0.1:1") }, "connecting to 127.0.0.1:1: connection refused"},
		{"not our address", func(j *job) { j.Listens, j.Address = true, netip.MustParseAddrPort("192.0.2.1:0") }, "listening on 192.0.2.1:0: cannot assign"},
		{"congestion control", func(j *job) { j.Congestion = "nope" }, "congestion control nope is unknown here: choose with --congestion"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := good
			tt.change(&j)
			_, err := j.do(nil)
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
	server := testJob(PingPong)
	in, toWorker := io.Pipe()
	fromWorker, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- RunWorker(in, out, func() { t.Error("the end of input was reported too early") }) }()
	if err := json.NewEncoder(toWorker).Encode(server); err != nil {
		t.Fatal(err)
	}
	replies := json.NewDecoder(fromWorker)
	var listening struct{ Note netip.AddrPort }
	if err := replies.Decode(&listening); err != nil || listening.Note.Port() == 0 {
		t.Fatalf("first reply %+v, %v", listening, err)
	}
	s, err := connectTo(listening.Note, server.socketOptions())
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	var found struct{ Result *jobResult }
	if err := replies.Decode(&found); err != nil || found.Result == nil {
		t.Fatalf("second reply %+v, %v", found, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	toWorker.Close()
}

// TestRunWorkerEOF: the end of input is reported while the job goes on.
func TestRunWorkerEOF(t *testing.T) {
	job, err := json.Marshal(testJob(PingPong))
	if err != nil {
		t.Fatal(err)
	}
	fromWorker, out := io.Pipe()
	ended, eof := make(chan error, 1), make(chan struct{})
	go func() { ended <- RunWorker(bytes.NewReader(job), out, func() { close(eof) }) }()
	<-eof
	var listening struct{ Note netip.AddrPort }
	if err := json.NewDecoder(fromWorker).Decode(&listening); err != nil {
		t.Fatal(err)
	}
	fromWorker.Close()
	s, err := connectTo(listening.Note, sockOptions{congestion: congestion})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := <-ended; err != io.ErrClosedPipe {
		t.Errorf("the worker ended with %v, want %v", err, io.ErrClosedPipe)
	}
}

func TestRunWorkerBadJob(t *testing.T) {
	var out strings.Builder
	if err := RunWorker(strings.NewReader(`{"kind":"pingpong"}`), &out, func() {}); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(out.String(), `{"error":"bad job`) {
		t.Errorf("reply %q", out.String())
	}
}

// TestJobLines pins what goes between the processes.
func TestJobLines(t *testing.T) {
	j := job{
		Spec: Spec{
			Kind: Stream, Size: 64, Streams: 2,
			Duration: time.Second, Warmup: time.Millisecond, Congestion: "cubic", CPUs: Anywhere(),
		},
		Address: netip.MustParseAddrPort("10.0.0.2:40001"), CPU: AnyCPU,
	}
	for _, tt := range []struct {
		line any
		want string
	}{
		{j, `{"kind":"stream","size":64,"streams":2,"duration_ns":1000000000,"warmup_ns":1000000,"congestion":"cubic",` +
			`"cpus":{"client":-1,"server":-1},"address":"10.0.0.2:40001","cpu":-1}`},
		{jobResult{Bytes: 5, Seconds: 0.5, CPUSeconds: 0.25}, `{"bytes":5,"seconds":0.5,"cpu_seconds":0.25}`},
	} {
		got, err := json.Marshal(tt.line)
		if err != nil || string(got) != tt.want {
			t.Errorf("line %s, %v\nwant %s", got, err, tt.want)
		}
	}
	h := stats.NewHistogram()
	h.Record(time.Millisecond)
	text, err := json.Marshal(jobResult{Latency: h})
	if err != nil {
		t.Fatal(err)
	}
	var back jobResult
	if err := json.Unmarshal(text, &back); err != nil || back.Latency.Count() != 1 {
		t.Errorf("a histogram came back as %+v, %v", back, err)
	}
}
