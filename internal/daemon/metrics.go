package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"exnet/internal/ctxend"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits for clients of the metrics.
const (
	metricsClients = 16               // connections
	metricsTimeout = 10 * time.Second // for a request and its answer
	metricsHeader  = 1 << 13          // bytes of a request's header
)

// MetricsAddr returns the address that s means: :PORT is a port of the loopback
// interface. The error wraps ErrConfig.
func MetricsAddr(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err == nil {
		if host == "" {
			host = "127.0.0.1"
		}
		_, err = strconv.ParseUint(port, 10, 16)
		if _, bad := netip.ParseAddr(host); bad != nil && host != "localhost" {
			err = bad
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w: metrics address %q: use :PORT (on 127.0.0.1) or ADDRESS:PORT", ErrConfig, s)
	}
	return net.JoinHostPort(host, port), nil
}

// exporter serves the metrics.
type exporter struct {
	ln     net.Listener
	server *http.Server
}

// openMetrics binds the address. Nothing is answered until run.
func (d *Daemon) openMetrics() (*exporter, error) {
	ln, err := net.Listen("tcp", d.cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w: choose another address", err)
	}
	reg := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		collector{d.Status, d.Sockets},
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
		fmt.Fprintf(w, "node %d of fabric %s: see /metrics\n", d.member.ID(), d.cfg.Fabric)
	})
	conns := &newest{Listener: ln, most: metricsClients}
	return &exporter{conns, &http.Server{
		Handler: forThisHost(ln.Addr(), mux), ConnState: conns.state, ReadTimeout: metricsTimeout, WriteTimeout: metricsTimeout, IdleTimeout: 6 * metricsTimeout,
		MaxHeaderBytes: metricsHeader, ErrorLog: slog.NewLogLogger(d.cfg.Log.Handler(), slog.LevelWarn),
	}}, nil
}

// url is where the metrics are.
func (e *exporter) url() string { return "http://" + e.ln.Addr().String() + "/metrics" }

// run answers until ctx ends.
func (e *exporter) run(ctx context.Context) error {
	defer ctxend.Do(ctx, func() { _ = e.server.Close() })()
	if err := e.server.Serve(e.ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// close releases the address.
func (e *exporter) close() error {
	return errors.Join(e.server.Close(), ignoreClosed(e.ln.Close()))
}
