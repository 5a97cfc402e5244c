// Package rules decides which connections of which programs may be direct, and of which class
// they are, by exn-run's options and the environment (SPEC.md, section 8).
//
//	rules file ── Parse ──▶ Rules ── Compile ──▶ EXNET_RULES ── FromEnvironment ──▶ Policy
//
// Concurrency: Rules and Policies are immutable, and may be used from many goroutines.
package rules

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"strconv"
	"strings"

	"exnet/internal/infile"
)

// ErrRules is wrapped by the error for rules that cannot be understood; the text
// says where they are wrong.
var ErrRules = errors.New("invalid rules")

// Action is what a rule asks for.
type Action uint8

// Actions.
const (
	TCP Action = iota
	Direct
	// Reliable is of UDP only: datagrams are direct, and their sender waits for room.
	Reliable
)

// String returns the word of the rules file.
func (a Action) String() string {
	if a == Direct {
		return "direct"
	}
	return "tcp"
}

// Role is what a program is in a connection.
type Role uint8

// Roles.
const (
	AnyRole Role = iota
	Client       // it called connect
	Server       // it accepted
)

// Rule says what becomes of the connections that it matches.
type Rule struct {
	Action  Action
	Program string // pattern for the basename of the program: * any characters, ? one
	Role    Role
	// Addr are the addresses of the server's end. The zero Prefix is any.
	Addr netip.Prefix
	// Low and High are the first and the last port of the server's end.
	Low, High uint16
	// Class is that of the connection, if Classed. 0: none.
	Class   Class
	Classed bool
	Proto   Proto
}

// Proto is the protocol that a rule is about.
type Proto uint8

// Protocols.
const (
	AnyProto    Proto = iota
	ProtoTCP          // TCP's connections
	ProtoUDP          // UDP's datagrams
	ReliableUDP       // the same, and their sender waits for room
)

// covers reports whether a rule is about a question of UDP, or of TCP.
func (p Proto) covers(udp bool) bool { return p == AnyProto || (p != ProtoTCP) == udp }

// Class is what a connection's packets are, to the fabric (fabric.Class): their DSCP, 0 to
// MaxClass.
type Class uint8

// MaxClass is the highest Class.
const MaxClass Class = 63

// Rules are looked at in their order; the first that matches decides.
type Rules []Rule

// Read reads a rules file. The error names the file and the line.
func Read(path string) (Rules, error) {
	f, err := infile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Parse(f, path)
}

// Parse reads rules, one a line:
//
//	ACTION PROGRAM ROLE ADDRESS PORT [class=CLASS] [proto=PROTOCOL] [reliable]
//	tcp    ssh*    client *     22
//	direct *       *   10.2.0.0/24 5201 class=10
//	direct *       *   *        53   proto=udp reliable
//
// Empty lines and what follows a # are skipped. name is for errors, of which there is one for each
// line that is wrong, joined.
func Parse(r io.Reader, name string) (Rules, error) {
	var rules Rules
	var errs []error
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		rule, err := parseRule(fields)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %s:%d: %w", ErrRules, name, n, err))
		}
		rules = append(rules, rule)
	}
	if path := new(fs.PathError); errors.As(lines.Err(), &path) {
		return nil, path // it names the file
	} else if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if errs != nil {
		return nil, errors.Join(errs...)
	}
	return rules, nil
}

func parseRule(fields []string) (r Rule, err error) {
	if len(fields) < 5 || len(fields) > 8 {
		much := "few"
		if len(fields) > 8 {
			much = "many"
		}
		return r, fmt.Errorf("too %s fields (%d): write ACTION PROGRAM ROLE ADDRESS PORT [class=CLASS] [proto=tcp|udp] [reliable], as in: tcp ssh* client * 22", much, len(fields))
	}
	switch fields[0] {
	case "direct":
		r.Action = Direct
	case "tcp":
		r.Action = TCP
	default:
		return r, fmt.Errorf("action %q: use direct or tcp", fields[0])
	}
	if r.Program, err = parseProgram(fields[1]); err != nil {
		return r, err
	}
	switch fields[2] {
	case "client":
		r.Role = Client
	case "server":
		r.Role = Server
	case "*", "any":
	default:
		return r, fmt.Errorf("role %q: use client, server or *", fields[2])
	}
	if r.Addr, err = parseAddr(fields[3]); err != nil {
		return r, err
	}
	if r.Low, r.High, err = parsePorts(fields[4]); err != nil {
		return r, err
	}
	return r, r.parseOptions(fields[5:])
}

// parseOptions reads what may follow the ports.
func (r *Rule) parseOptions(fields []string) error {
	for _, f := range fields {
		class, isClass := strings.CutPrefix(f, "class=")
		switch {
		case isClass && !r.Classed:
			if r.Class, r.Classed = parseClass(class); !r.Classed {
				return fmt.Errorf("%q: use class= and a number from 0 to %d", f, MaxClass)
			}
		case f == "proto=tcp" && r.Proto == AnyProto:
			r.Proto = ProtoTCP
		case f == "proto=udp" && r.Proto == AnyProto:
			r.Proto = ProtoUDP
		case f == "reliable" && r.Proto == ProtoUDP && r.Action == Direct:
			r.Proto = ReliableUDP
		case strings.HasPrefix(f, "class="), strings.HasPrefix(f, "proto=") && r.Proto != AnyProto:
			return fmt.Errorf("%q: use %s once", f, f[:len("class")])
		case strings.HasPrefix(f, "proto="):
			return fmt.Errorf("%q: use proto=tcp or proto=udp", f)
		case f == "reliable":
			return fmt.Errorf("%q: use it after proto=udp of a direct rule", f)
		default:
			return fmt.Errorf("%q: use class= and a number from 0 to %d, proto=tcp or proto=udp, and reliable after proto=udp of a direct rule", f, MaxClass)
		}
	}
	return nil
}

// parseClass reads a class; false: it is none.
func parseClass(text string) (Class, bool) {
	n, err := parseNumber(text, int(MaxClass))
	return Class(n), err == nil
}

// maxPattern is the longest pattern for a program: NAME_MAX.
const maxPattern = 255

func parseProgram(text string) (string, error) {
	switch {
	case strings.Contains(text, "/"):
		return "", fmt.Errorf("program %q: use its name without directories", text)
	case len(text) > maxPattern:
		return "", fmt.Errorf("program %.20q...: use up to %d characters", text, maxPattern)
	}
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f || c == ';' {
			return "", fmt.Errorf("program %q: use printable ASCII characters other than ';', and ? for any other", text)
		}
	}
	return text, nil
}

func parseAddr(text string) (netip.Prefix, error) {
	if text == "*" || text == "any" {
		return netip.Prefix{}, nil
	}
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("address %q: use an IPv4 or IPv6 address, a network such as 10.2.0.0/24, or *", text)
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("address %q: it has bits beyond the length of the network; write %v", text, p.Masked())
	}
	return p, nil
}

func parsePorts(text string) (low, high uint16, err error) {
	if text == "*" || text == "any" {
		return 0, 65535, nil
	}
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	l, errLow := strconv.ParseUint(first, 10, 16)
	h, errHigh := strconv.ParseUint(last, 10, 16)
	if errLow != nil || errHigh != nil || l > h {
		return 0, 0, fmt.Errorf("port %q: use a number up to 65535, a range such as 8000-8099, the lower port first, or *", text)
	}
	return uint16(l), uint16(h), nil
}

// Compile returns the form of EXNET_RULES (SPEC.md, section 8).
func (rules Rules) Compile() string {
	var b strings.Builder
	for i, r := range rules {
		if i > 0 {
			b.WriteByte(';')
		}
		action, role := "t", "*"
		if r.Action == Direct {
			action = "d"
		}
		switch r.Role {
		case Client:
			role = "c"
		case Server:
			role = "s"
		}
		addr, bits := r.headerPrefix()
		fmt.Fprintf(&b, "%s %s %s %x %d %d %d", action, r.Program, role, addr, bits, r.Low, r.High)
		switch {
		case r.Classed:
			fmt.Fprintf(&b, " %d", r.Class)
		case r.Proto != AnyProto:
			b.WriteString(" -")
		}
		if r.Proto != AnyProto {
			fmt.Fprintf(&b, " %c", protos[r.Proto])
		}
	}
	return b.String()
}

// headerPrefix returns the addresses that match, as in a segment's header, and how many
// bits of them count.
func (r Rule) headerPrefix() ([16]byte, int) {
	switch {
	case !r.Addr.IsValid():
		return [16]byte{}, 0
	case r.Addr.Addr().Is4():
		return r.Addr.Addr().As16(), 96 + r.Addr.Bits()
	}
	return r.Addr.Addr().As16(), r.Addr.Bits()
}

// MaxCompiled is the most bytes of compiled rules for which the library has room.
const MaxCompiled = 16<<10 - 1
