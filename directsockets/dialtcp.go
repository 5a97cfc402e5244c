//go:build go1.26

// Exn-go builds this package with the previous Go, too, whose net.Dialer has no DialTCP.

package directsockets

import (
	"context"
	"net"
	"net/netip"
)

// DialTCP connects to an address that needs no name server.
func (d *Dialer) DialTCP(ctx context.Context, network string, laddr, raddr netip.AddrPort) (net.Conn, error) {
	cfg, err := d.Config.withDefaults()
	if err != nil {
		return nil, err
	}
	if d.Shadow != nil {
		return d.wrapDialed(cfg)(d.Shadow(ctx, network, raddr.String()))
	}
	shadow, err := d.Dialer.DialTCP(ctx, network, laddr, raddr)
	if err != nil {
		return nil, err
	}
	return d.wrapDialed(cfg)(shadow, nil)
}
