package rules

import (
	"fmt"
	"net/netip"
	"strings"
)

// Paths says which connections are to go through the fabric, by the server's end. It
// implements flag.Value.
type Paths []Rule

// Fabric is what a rule for the fabric begins with.
const Fabric = "fabric"

// Set adds a rule:
//
//	fabric                     all connections
//	fabric:8080                those to a port, or a range of ports
//	fabric:10.2.0.0/24         those to an address, or a network
//	fabric:10.2.0.0/24,8000-8099
func (p *Paths) Set(text string) error {
	name, what, some := strings.Cut(text, ":")
	if name != Fabric || some && what == "" {
		return fmt.Errorf("%q: use fabric, fabric:PORT[-PORT], fabric:ADDR[/BITS] or fabric:ADDR[/BITS],PORT[-PORT]", text)
	}
	addr, port, both := strings.Cut(what, ",")
	switch {
	case both:
	case !some:
		addr, port = "*", "*"
	case strings.Trim(what, "0123456789-") == "":
		addr, port = "*", what
	default:
		port = "*"
	}
	r := Rule{Action: Direct, Program: "*"}
	var err error
	if r.Addr, err = parseAddr(addr); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	if r.Low, r.High, err = parsePorts(port); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	if r.High == 0 {
		return fmt.Errorf("%q: no server has port 0", text)
	}
	*p = append(*p, r)
	return nil
}

// Type implements pflag.Value.
func (Paths) Type() string { return "rule" }

// String implements flag.Value.
func (p Paths) String() string {
	var all []string
	for _, r := range p {
		text := Fabric
		switch {
		case r.Addr.IsValid():
			text += ":" + r.Addr.String()
			if r.Low != 0 || r.High != 65535 {
				text += "," + r.portsText()
			}
		case r.Low != 0 || r.High != 65535:
			text += ":" + r.portsText()
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func (r Rule) portsText() string {
	if r.Low == r.High {
		return fmt.Sprint(r.Low)
	}
	return fmt.Sprintf("%d-%d", r.Low, r.High)
}

// Cover reports whether a connection to a server's end goes through the fabric.
func (p Paths) Cover(server netip.AddrPort) bool {
	for _, r := range p {
		if server.Port() >= r.Low && server.Port() <= r.High && r.covers(server.Addr()) {
			return true
		}
	}
	return false
}
