package daemon

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"exnet/node/exporter"
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
		return "", fmt.Errorf("%w: %q: use :PORT (on 127.0.0.1) or ADDRESS:PORT, such as :9464", ErrConfig, s)
	}
	return net.JoinHostPort(host, port), nil
}

// openMetrics binds the address of the node's metrics.
func (d *Daemon) openMetrics() (*exporter.Exporter, error) {
	about := func() string { return fmt.Sprintf("node %d of fabric %s", d.member.ID(), d.cfg.Fabric) }
	return exporter.Open(exporter.Config{Addr: d.cfg.Metrics, Token: d.cfg.MetricsToken, About: about, Log: d.cfg.Log}, collector{d.Status, d.Sockets})
}
