package exporter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"exnet/internal/ctxend"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits for clients.
const (
	maxClients = 16               // connections
	maxTime    = 10 * time.Second // for a request and its answer
	maxHeader  = 1 << 13          // bytes of a request's header
)

// Exporter serves metrics.
type Exporter struct {
	ln     net.Listener
	server *http.Server
}

// Config says what is served, and to whom.
type Config struct {
	// Addr is the TCP address.
	Addr string
	// Token names a file. Who asks has to show what it holds, as a bearer token (RFC 6750, 2.1).
	// Default: nobody has to.
	Token string
	// About says whose metrics they are.
	About func() string
	// Log gets what goes wrong in a request.
	Log *slog.Logger
}

// Open binds the address. Beside the metrics of own there are Go's and the process's. Nothing is
// answered until Run.
func Open(c Config, own prometheus.Collector) (*Exporter, error) {
	if c.Token != "" {
		if _, err := readToken(c.Token); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	ln, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w: choose another address", err)
	}
	reg := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		own,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := reg.Register(c); err != nil {
			return nil, errors.Join(fmt.Errorf("metrics: %w", err), ln.Close())
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", newScrapes(promhttp.HandlerFor(reg, promhttp.HandlerOpts{})))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s: see /metrics\n", c.About())
	})
	conns := &newest{Listener: ln, most: maxClients}
	return &Exporter{conns, &http.Server{
		Handler: forThisHost(ln.Addr(), forHolders(c.Token, c.Log, mux)), ConnState: conns.state, ReadTimeout: maxTime, WriteTimeout: maxTime, IdleTimeout: 6 * maxTime,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn),
	}}, nil
}

// URL is where the metrics are.
func (e *Exporter) URL() string { return "http://" + e.ln.Addr().String() + "/metrics" }

// Run answers until ctx ends.
func (e *Exporter) Run(ctx context.Context) error {
	defer ctxend.Do(ctx, func() { _ = e.server.Close() })()
	if err := e.server.Serve(e.ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// Close releases the address.
func (e *Exporter) Close() error {
	err := e.ln.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return errors.Join(e.server.Close(), err)
}
