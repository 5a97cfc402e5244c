package exporter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"exnet/internal/leaktest"

	"github.com/prometheus/client_golang/prometheus"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// serveScrapes serves a page as a node does its metrics.
func serveScrapes(t *testing.T, page http.Handler) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := &newest{Listener: ln, most: maxClients}
	s := &http.Server{Handler: forThisHost(ln.Addr(), newScrapes(page)), ConnState: conns.state,
		ReadTimeout: time.Hour, WriteTimeout: time.Hour}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(conns)
	}()
	t.Cleanup(func() { s.Close(); <-done })
	return ln.Addr().String()
}

// dialTo connects, with a small receive buffer if wanted.
func dialTo(t *testing.T, addr string, rcvbuf int) net.Conn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			if rcvbuf > 0 {
				_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, rcvbuf)
			}
		})
	}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// get asks for the metrics, under a name of the host.
func get(t *testing.T, addr, host string) (code int, text string) {
	t.Helper()
	c := dialTo(t, addr, 0)
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute)) // a guard: no answer comes
	say(t, c, "GET /metrics HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// Who holds connections, in silence, in the middle of a request, or with an answer that it does not
// read, keeps nobody from the metrics.
func TestScrapesHeld(t *testing.T) {
	big := strings.Repeat("exnet 1\n", 1<<20)
	var asked atomic.Int32
	addr := serveScrapes(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		io.WriteString(w, big)
	}))
	for how, hold := range map[string]func(c net.Conn){
		"silence":        func(net.Conn) {},
		"half a request": func(c net.Conn) { say(t, c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n") },
		"an answer":      func(c net.Conn) { say(t, c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n") },
	} {
		t.Run(how, func(t *testing.T) {
			for range 3 * maxClients {
				hold(dialTo(t, addr, 4096))
			}
			if code, text := get(t, addr, "127.0.0.1"); code != http.StatusOK || text != big {
				t.Errorf("%d, %d bytes", code, len(text))
			}
		})
	}
	if asked.Load() < 3 {
		t.Errorf("%d pages", asked.Load())
	}
}

// One page is computed at a time, none for who has gone, and there is a pause after each.
func TestScrapesInTurn(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	pages := 0
	var s scrapes
	s = newScrapes(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		pages++
		select {
		case <-s.turn:
			t.Error("another page may be computed meanwhile")
		default:
		}
		cancel() // who asks next has gone
	}))
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	for range 5 {
		s.ServeHTTP(httptest.NewRecorder(), r)
	}
	if pages != 1 {
		t.Errorf("%d pages", pages)
	}
	s = newScrapes(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Millisecond) }))
	r = httptest.NewRequest("GET", "/", nil)
	begin := time.Now()
	next := s.compute(&answered{header: http.Header{}}, r, time.Time{})
	if rest := next.Sub(begin); rest < 4*time.Millisecond {
		t.Errorf("the next may begin after %v", rest)
	}
}

// A page that panics does not keep the turn.
func TestScrapePanics(t *testing.T) {
	s := newScrapes(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	for range 2 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("nobody is told")
				}
			}()
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		}()
		if len(s.turn) != 1 {
			t.Fatal("the turn is lost")
		}
	}
}

// A page of the web that has its name lead to this host gets nothing.
func TestScrapesByName(t *testing.T) {
	addr := serveScrapes(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "secret") }))
	_, port, _ := net.SplitHostPort(addr)
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:" + port: 200, "localhost:" + port: 200, "LocalHost": 200, "[::1]:1": 200, "::1": 200,
		"rebind.example": 421, "rebind.example:" + port: 421, "127.0.0.1.rebind.example": 421, "localhost.rebind.example": 421,
	} {
		if code, text := get(t, addr, host); code != want || strings.Contains(text, "secret") != (want == 200) {
			t.Errorf("%s: %d %s", host, code, text)
		}
	}
	if h := forThisHost(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, http.NotFoundHandler()); fmt.Sprintf("%T", h) != fmt.Sprintf("%T", http.NotFoundHandler()) {
		t.Errorf("a name is wanted at an address that others reach: %T", h)
	}
	if namesHost("other", "own") || !namesHost("own:1", "own") || !namesHost("", "own") || namesHost("x", "") {
		t.Error("the host's own name")
	}
}

// A whole exporter, too.
func TestExporterHeld(t *testing.T) {
	e, err := Open(Config{Addr: "127.0.0.1:0", About: func() string { return "a test" }, Log: slog.New(slog.DiscardHandler)}, prometheus.NewGauge(prometheus.GaugeOpts{Name: "exnet_test"}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	defer func() {
		cancel()
		if err := errors.Join(<-ended, e.Close()); err != nil {
			t.Error(err)
		}
	}()
	addr := strings.TrimSuffix(strings.TrimPrefix(e.URL(), "http://"), "/metrics")
	for i := range 100 {
		c := dialTo(t, addr, 4096)
		switch i % 3 {
		case 1:
			say(t, c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n")
		case 2:
			say(t, c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
		}
	}
	if code, text := get(t, addr, "localhost"); code != http.StatusOK || !strings.Contains(text, "exnet_test 0") {
		t.Errorf("%d: %.200s", code, text)
	}
	if code, text := get(t, addr, "rebind.example"); code != http.StatusMisdirectedRequest || strings.Contains(text, "exnet_test 0") {
		t.Errorf("%d: %.200s", code, text)
	}
	huge := dialTo(t, addr, 0)
	huge.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(huge, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("y", 1<<20))
	if r, err := http.ReadResponse(bufio.NewReader(huge), nil); err == nil && r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of a megabyte: %s", r.Status)
	}
}
