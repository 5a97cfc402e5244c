package rules

import (
	"net/netip"
)

// Question is a connection, or a listener, that rules decide about.
type Question struct {
	Program  string // basename
	Invoked  string // the name by which it was executed, if that is another one
	Role     Role   // Client or Server
	Addr     netip.Addr
	Port     uint16
	Listener bool // Addr may be the wildcard address
	Loopback bool // loopback addresses are included
	UDP      bool // it is about datagrams
}

// Decide returns what becomes of a connection and, if that is TCP, whether the
// reason is only that loopback addresses are not included.
func (rules Rules) Decide(q Question) (a Action, notIncluded bool) {
	if r := rules.findRule(q); r != nil {
		if r.Action == Direct && r.Proto == ReliableUDP {
			return Reliable, false
		}
		return r.Action, false
	}
	if q.Addr.Unmap().IsLoopback() && !q.Loopback {
		return TCP, true
	}
	return Direct, false
}

// findRule returns the rule that decides; nil: there is none.
func (rules Rules) findRule(q Question) *Rule {
	wildcard := q.Listener && q.Addr.IsUnspecified()
	for i := range rules {
		r := &rules[i]
		if !r.Proto.covers(q.UDP) || r.Role != AnyRole && r.Role != q.Role || q.Port < r.Low || q.Port > r.High || !matchPattern(r.Program, q.Program) && (q.Invoked == "" || !matchPattern(r.Program, q.Invoked)) {
			continue
		}
		if wildcard {
			if _, bits := r.headerPrefix(); bits > 0 {
				if r.Action == Direct {
					return r
				}
				continue
			}
		}
		if r.covers(q.Addr) {
			return r
		}
	}
	return nil
}

// covers reports whether the address is among those of the rule.
func (r Rule) covers(a netip.Addr) bool {
	want, bits := r.headerPrefix()
	have := a.As16()
	for i := range have {
		if bits <= 0 {
			return true
		}
		mask := byte(0xff)
		if bits < 8 {
			mask <<= 8 - bits
		}
		if (want[i]^have[i])&mask != 0 {
			return false
		}
		bits -= 8
	}
	return true
}

// matchPattern reports whether name matches a pattern: * stands for any characters, ?
// for one byte.
func matchPattern(pattern, name string) bool {
	star, from := -1, 0 // position after the last *, and where in name it was tried last
	p, n := 0, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			p++
			star, from = p, n
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			from++
			p, n = star, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
