package rules

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Compiled reads the form of EXNET_RULES, as the library does.
func Compiled(text string) (Rules, error) {
	if text == "" {
		return nil, nil
	}
	var rules Rules
	for part := range strings.SplitSeq(text, ";") {
		r, err := compiledRule(part)
		if err != nil {
			return nil, fmt.Errorf("%w: rule %q: %w", ErrRules, part, err)
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func compiledRule(text string) (r Rule, err error) {
	f := strings.Split(text, " ")
	if len(f) < 7 || len(f) > 9 {
		return r, fmt.Errorf("%d fields, want 7 to 9", len(f))
	}
	switch f[0] {
	case "d":
		r.Action = Direct
	case "t":
	default:
		return r, fmt.Errorf("action %q", f[0])
	}
	if r.Program, err = parseProgram(f[1]); err != nil || r.Program == "" {
		return r, fmt.Errorf("program %q", f[1])
	}
	switch f[2] {
	case "c":
		r.Role = Client
	case "s":
		r.Role = Server
	case "*":
	default:
		return r, fmt.Errorf("role %q", f[2])
	}
	var addr [16]byte
	if n, err := hex.Decode(addr[:], []byte(f[3][:min(len(f[3]), 32)])); err != nil || n != 16 || len(f[3]) != 32 || f[3] != strings.ToLower(f[3]) {
		return r, fmt.Errorf("address %q", f[3])
	}
	bits, err := parseNumber(f[4], 128)
	if err != nil {
		return r, err
	}
	if bits > 0 {
		a := netip.AddrFrom16(addr)
		if a.Is4In6() && bits >= 96 {
			a, bits = a.Unmap(), bits-96
		}
		r.Addr = netip.PrefixFrom(a, bits)
	}
	low, errLow := parseNumber(f[5], 65535)
	high, errHigh := parseNumber(f[6], 65535)
	if errLow != nil || errHigh != nil || low > high {
		return r, fmt.Errorf("ports %q to %q", f[5], f[6])
	}
	r.Low, r.High = uint16(low), uint16(high)
	if len(f) == 8 || len(f) == 9 && f[7] != "-" {
		if r.Class, r.Classed = parseClass(f[7]); !r.Classed {
			return r, fmt.Errorf("class %q", f[7])
		}
	}
	if len(f) == 9 {
		at := strings.Index(protos, f[8])
		if at < 0 || len(f[8]) != 1 {
			return r, fmt.Errorf("protocol %q", f[8])
		}
		r.Proto = Proto(at)
	}
	return r, nil
}

// protos are the letters of the protocols.
const protos = "*tur"

// parseNumber reads a decimal number of digits only, up to high.
func parseNumber(text string, high int) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || int(n) > high || len(text) > 6 {
		return 0, fmt.Errorf("number %q", text)
	}
	return int(n), nil
}
