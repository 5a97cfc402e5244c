package mesh

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// unreached is notified of an address, once for all attempts.
const unreached = "cannot be reached"

// silence is an error by which nobody answered.
type silence struct{ error }

func (s *silence) Unwrap() error { return s.error }

// isSilent reports whether err is such an error.
func isSilent(err error) bool {
	_, ok := errors.AsType[*silence](err)
	return ok
}

// failure is why a node could not be reached at an address.
type failure struct {
	error
	at netip.AddrPort
}

func (f *failure) Unwrap() error { return f.error }

// saysMore reports whether a failure at an address replaces the last one of that node. A node may
// have addresses that are unreachable from here: no answer there does not replace an answer of the
// node itself.
func saysMore(last, err error, at netip.AddrPort) bool {
	f, ok := errors.AsType[*failure](last)
	return !isSilent(err) || !ok || f.at == at || isSilent(f)
}

// withoutPorts returns an error without the ports that differ each time.
func withoutPorts(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op == "remote error" {
		return err
	}
	where := ""
	if op.Addr != nil && (op.Op == "dial" || op.Op == "listen") {
		where = " " + op.Addr.String()
	}
	return fmt.Errorf("%s%s: %w", op.Op, where, op.Err)
}
