package exporter

import (
	"bytes"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// newest is a listener that has the newest connections only: for one more it closes the one that
// has been quiet the longest. So who holds many of them, and says nothing, keeps nobody out.
//
// Concurrency: all methods may be called from many goroutines.
type newest struct {
	net.Listener
	most int

	mu sync.Mutex
	// conns: the quietest first.
	conns []*held // +checklocks:mu
}

// held is one of its connections.
type held struct {
	net.Conn
	by *newest
}

func (l *newest) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	h := &held{Conn: conn, by: l}
	if old := l.addConn(h); old != nil {
		_ = old.Conn.Close()
	}
	return h, nil
}

// addConn takes a connection, and returns the one that has to go for it, if any.
func (l *newest) addConn(h *held) (old *held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) == l.most {
		old, l.conns = l.conns[0], slices.Delete(l.conns, 0, 1)
	}
	l.conns = append(l.conns, h)
	return old
}

// state hears each connection's state (http.Server.ConnState): one that asks is not quiet.
func (l *newest) state(conn net.Conn, s http.ConnState) {
	h, ok := conn.(*held)
	if !ok || s != http.StateActive {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.conns, h); i >= 0 {
		l.conns = append(slices.Delete(l.conns, i, i+1), h)
	}
}

func (h *held) Close() error {
	h.by.mu.Lock()
	if i := slices.Index(h.by.conns, h); i >= 0 {
		h.by.conns = slices.Delete(h.by.conns, i, i+1)
	}
	h.by.mu.Unlock()
	return h.Conn.Close()
}

// scrapes answers with one page at a time, which it computes before it sends the first byte: who
// reads slowly delays nobody. After a page it pauses, so that all pages together take a quarter of
// a processor.
type scrapes struct {
	page http.Handler
	turn chan time.Time // holds when the next one may begin, while nobody has the turn
}

// longestPause bounds the pause after a page that took long, as on a busy machine.
const longestPause = 100 * time.Millisecond

func newScrapes(page http.Handler) scrapes {
	s := scrapes{page, make(chan time.Time, 1)}
	s.turn <- time.Time{}
	return s
}

func (s scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := answered{header: w.Header(), code: http.StatusOK}
	select {
	case next := <-s.turn:
		func() {
			defer func() { s.turn <- next }() // also if the page panics
			next = s.compute(&a, r, next)
		}()
	case <-r.Context().Done():
	}
	if r.Context().Err() == nil {
		w.WriteHeader(a.code)
		_, _ = w.Write(a.text.Bytes())
	}
}

// compute has the page computed at the time next or later, if somebody still asks for it, and
// returns when the next one may be.
func (s scrapes) compute(a *answered, r *http.Request, next time.Time) time.Time {
	t := time.NewTimer(time.Until(next))
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
	if r.Context().Err() != nil {
		return next
	}
	begin := time.Now()
	s.page.ServeHTTP(a, r)
	end := time.Now()
	return end.Add(min(3*end.Sub(begin), longestPause))
}

// answered is a page in memory.
type answered struct {
	header http.Header
	code   int
	text   bytes.Buffer
}

func (a *answered) Header() http.Header         { return a.header }
func (a *answered) WriteHeader(code int)        { a.code = code }
func (a *answered) Write(b []byte) (int, error) { return a.text.Write(b) }

// forThisHost answers only who asks for this host by an address or its name, if at is a loopback
// address. A web page of a stranger can have a browser here ask under the stranger's name, which it
// has lead to 127.0.0.1 by then, and read the answer (DNS rebinding).
func forThisHost(at net.Addr, h http.Handler) http.Handler {
	if a, ok := at.(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		return h
	}
	own, _ := os.Hostname()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !namesHost(r.Host, own) {
			http.Error(w, "ask for 127.0.0.1 or localhost: this is another host's name", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// namesHost reports whether a Host header is an address, localhost, the host's own name, or
// missing.
func namesHost(header, own string) bool {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = header
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	_, err = netip.ParseAddr(host)
	return host == "" || err == nil || strings.EqualFold(host, "localhost") || own != "" && strings.EqualFold(host, own)
}
