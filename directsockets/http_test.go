package directsockets_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/rpc"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/segment"
)

// recorder is a listener that remembers its connections.
type recorder struct {
	net.Listener
	mu    sync.Mutex
	conns []*directsockets.Conn
}

func (r *recorder) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err == nil {
		r.mu.Lock()
		r.conns = append(r.conns, c.(*directsockets.Conn))
		r.mu.Unlock()
	}
	return c, err
}

func (r *recorder) first() *directsockets.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conns[0]
}

// bytes is how many bytes went through memory, and on the shadow.
func (r *recorder) bytes() (direct, shadow uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		s := c.Stats()
		direct += s.Counters[segment.SentDirect] + s.Counters[segment.ReceivedDirect]
		shadow += s.Counters[segment.SentShadow] + s.Counters[segment.ReceivedShadow]
	}
	return direct, shadow
}

// startHTTP starts a server, and returns a client for it.
func startHTTP(t *testing.T, handler http.Handler, change func(*httptest.Server, *http.Transport)) (*http.Client, string, *recorder) {
	t.Helper()
	cfg := directsockets.Config{Broker: startBroker(t)}
	lc := directsockets.ListenConfig{Config: cfg}
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	rec := &recorder{Listener: l}
	srv := httptest.NewUnstartedServer(handler)
	srv.Listener.Close()
	srv.Listener = rec
	d := directsockets.Dialer{Config: cfg}
	tr := &http.Transport{DialContext: d.DialContext, MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}
	if change != nil {
		change(srv, tr)
	}
	srv.Start()
	t.Cleanup(srv.Close)
	t.Cleanup(tr.CloseIdleConnections)
	waitListener(t, cfg.Broker, l.Addr())
	return &http.Client{Transport: tr}, "http://" + l.Addr().String(), rec
}

// echoHandler answers with the hash of the body and, for ?n=, so many bytes.
func echoHandler(w http.ResponseWriter, r *http.Request) {
	h := sha256.New()
	if _, err := io.Copy(h, r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Sum", fmt.Sprintf("%x", h.Sum(nil)))
	n, _ := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
	io.Copy(w, io.LimitReader(&patternReader{}, n))
}

type patternReader struct{ off int64 }

func (p *patternReader) Read(b []byte) (int, error) {
	fillPattern(b, p.off)
	p.off += int64(len(b))
	return len(b), nil
}

// request sends a body of size bytes and checks the answer of n.
func request(client *http.Client, url string, size, n int64) error {
	body := make([]byte, size)
	fillPattern(body, 0)
	resp, err := client.Post(fmt.Sprintf("%s/?n=%d", url, n), "application/octet-stream", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if want := fmt.Sprintf("%x", sha256.Sum256(body)); resp.Header.Get("Sum") != want {
		return errors.New("the body that the server got differs")
	}
	got, err := readPattern(resp.Body, 0)
	if err == nil && got != n {
		err = fmt.Errorf("%d bytes, not %d", got, n)
	}
	return err
}

var httpKinds = map[string]func(*httptest.Server, *http.Transport){
	"http1": nil,
	"http2": func(s *httptest.Server, tr *http.Transport) { // unencrypted, as gRPC uses it
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
		tr.MaxConnsPerHost = 0
	},
}

// TestHTTP: thousands of requests at once.
func TestHTTP(t *testing.T) {
	for name, change := range httpKinds {
		t.Run(name, func(t *testing.T) {
			client, url, rec := startHTTP(t, http.HandlerFunc(echoHandler), change)
			requests := 3000
			if testing.Short() || raceEnabled {
				requests = 500
			}
			for range 100 { // a connection of http2 is direct after that
				if err := request(client, url, 10, 10); err != nil {
					t.Fatal(err)
				}
			}
			first := rec.first() // more are opened for many requests
			before := counter(first, segment.SentShadow)
			var wg sync.WaitGroup
			for i := range requests {
				wg.Go(func() {
					if err := request(client, url, int64(i%5000), int64(i*7%9000)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			direct, shadow := rec.bytes()
			t.Logf("%d bytes direct, %d on the shadow", direct, shadow)
			if direct == 0 {
				t.Error("all went over the shadow")
			}
			if name == "http2" && counter(first, segment.SentShadow) != before {
				t.Error("bytes went over the shadow of the first connection")
			}
		})
	}
}

func TestHTTPLargeBodies(t *testing.T) {
	for name, change := range httpKinds {
		t.Run(name, func(t *testing.T) {
			client, url, _ := startHTTP(t, http.HandlerFunc(echoHandler), change)
			size := int64(24 << 20)
			if testing.Short() || raceEnabled {
				size = 4 << 20
			}
			var wg sync.WaitGroup
			for i := range int64(4) {
				wg.Go(func() {
					if err := request(client, url, size+i, size-i); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestHTTPCancelled: requests are cancelled at any time; the others go on.
func TestHTTPCancelled(t *testing.T) {
	for name, change := range httpKinds {
		t.Run(name, func(t *testing.T) {
			var begun atomic.Int64
			client, url, _ := startHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				begun.Add(1)
				if r.URL.Query().Get("n") == "" {
					w.(http.Flusher).Flush()
					<-r.Context().Done() // the server hears of it
					return
				}
				echoHandler(w, r)
			}), change)
			var wg sync.WaitGroup
			for i := range 300 {
				wg.Go(func() {
					if i%3 != 0 {
						if err := request(client, url, 100, 100_000); err != nil {
							t.Error(err)
						}
						return
					}
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%50)*time.Millisecond)
					defer cancel()
					req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
					if err != nil {
						t.Error(err)
						return
					}
					resp, err := client.Do(req)
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if begun.Load() == 0 {
				t.Error("no request came")
			}
		})
	}
}

// TestTLS: crypto/tls on top.
func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(echoHandler))
	cfg := directsockets.Config{Broker: startBroker(t)}
	lc := directsockets.ListenConfig{Config: cfg}
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv.Listener.Close()
	srv.Listener = l
	srv.StartTLS()
	t.Cleanup(srv.Close)
	waitListener(t, cfg.Broker, l.Addr())
	d := directsockets.Dialer{Config: cfg}
	tr := srv.Client().Transport.(*http.Transport).Clone()
	tr.DialContext = d.DialContext
	tr.TLSClientConfig = &tls.Config{RootCAs: tr.TLSClientConfig.RootCAs, ServerName: "example.com"}
	t.Cleanup(tr.CloseIdleConnections)
	for range 20 {
		if err := request(&http.Client{Transport: tr}, srv.URL, 100_000, 200_000); err != nil {
			t.Fatal(err)
		}
	}
}

// Sum is a service of net/rpc.
type Sum struct{}

// Add adds.
func (Sum) Add(args [2]int, sum *int) error {
	*sum = args[0] + args[1]
	return nil
}

func TestRPC(t *testing.T) {
	c, s := directPair(t)
	srv := rpc.NewServer()
	if err := srv.Register(Sum{}); err != nil {
		t.Fatal(err)
	}
	go srv.ServeConn(s)
	client := rpc.NewClient(c)
	defer client.Close()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			var sum int
			if err := client.Call("Sum.Add", [2]int{i, 1}, &sum); err != nil || sum != i+1 {
				t.Error(sum, err)
			}
		})
	}
	wg.Wait()
}
