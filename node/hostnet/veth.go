package hostnet

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"exnet/internal/netns"
)

// ErrNameTaken says that an interface of that name exists.
var ErrNameTaken = errors.New("name is taken")

// VethEnd is one end of a pair of interfaces.
type VethEnd struct {
	NS     *netns.NS
	Name   string
	Config LinkConfig
}

// CreateVeth makes a pair of interfaces (veth(4)), configures both and brings them up. The
// kernel removes the pair with the namespace of either end.
func CreateVeth(a, b VethEnd) error {
	ca, err := Open(a.NS)
	if err != nil {
		return err
	}
	defer ca.Close()
	cb, err := Open(b.NS)
	if err != nil {
		return err
	}
	defer cb.Close()

	attrs := netlink.NewLinkAttrs() // -1 for "as is" where 0 is a value
	attrs.Name = a.Name
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: b.Name, PeerTxQLen: -1, PeerNamespace: netlink.NsFd(b.NS.Fd())}
	err = ca.withHandle(func(h *netlink.Handle) error { return h.LinkAdd(pair) })
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("hostnet: veth pair %s and %s: %w: choose other names", a.Name, b.Name, ErrNameTaken)
	}
	if err != nil {
		return fmt.Errorf("hostnet: veth pair %s and %s: %w", a.Name, b.Name, err)
	}
	if err := errors.Join(ca.configureByName(a), cb.configureByName(b)); err != nil {
		removeErr := ca.withHandle(func(h *netlink.Handle) error { return h.LinkDel(pair) })
		return errors.Join(err, removeErr)
	}
	return nil
}

func (c *Conn) configureByName(e VethEnd) error {
	link, err := c.Link(e.Name)
	if err != nil {
		return err
	}
	return c.Configure(link.Index, e.Config)
}
