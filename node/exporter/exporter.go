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

// Open binds a TCP address. about says whose metrics they are, to
// who asks. Beside those of own there are Go's
// and the process's. Nothing is answered until Run.
func Open(addr string, about func() string, log *slog.Logger, own prometheus.Collector) (*Exporter, error) {
	ln, err := net.Listen("tcp", addr)
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
		fmt.Fprintf(w, "%s: see /metrics\n", about())
	})
	conns := &newest{Listener: ln, most: maxClients}
	return &Exporter{conns, &http.Server{
		Handler: forThisHost(ln.Addr(), mux), ConnState: conns.state, ReadTimeout: maxTime, WriteTimeout: maxTime, IdleTimeout: 6 * maxTime,
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
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
