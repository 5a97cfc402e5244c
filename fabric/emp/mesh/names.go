package mesh

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"
)

// allOf comes before a name whose addresses are those of all members, such as that of a headless
// service of Kubernetes.
const allOf = "dns:"

// Times of a name: between two questions, and how long one may take.
const (
	resolveTime = 5 * time.Second
	lookupTime  = 5 * time.Second
)

// maxSeeds is how many addresses are dialed in all: a name may have any number.
const maxSeeds = 4096

const unresolved = "a name of members has no address"

// isAddr reports whether the host of an address with a port is no name.
func isAddr(at string) bool {
	_, err := netip.ParseAddrPort(at)
	return err == nil
}

// followName asks for a name's addresses again and again, as members come and go, until ctx ends.
func (m *Mesh) followName(ctx context.Context, name string) {
	tick := time.NewTicker(resolveTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.resolveName(ctx, name)
		case <-ctx.Done():
			return
		}
	}
}

// resolveName makes the addresses that a name has now seeds, and removes those that it had before.
// Without an answer nothing changes.
func (m *Mesh) resolveName(ctx context.Context, name string) {
	host, port, err := net.SplitHostPort(name)
	var addrs []netip.Addr
	if err == nil {
		ctx, stop := context.WithTimeout(ctx, lookupTime)
		defer stop()
		addrs, err = m.cfg.Lookup(ctx, host)
	}
	if err != nil {
		if ctx.Err() == nil {
			m.logOnce(unresolved, name, err)
		}
		return
	}
	has := make(map[string]bool)
	for _, a := range addrs {
		has[net.JoinHostPort(a.Unmap().String(), port)] = true
	}
	m.mu.Lock()
	m.nameLocked(name, has)
	m.mu.Unlock()
	m.wakeRun()
}

// nameLocked says which addresses a name has.
//
// +checklocks:m.mu
func (m *Mesh) nameLocked(name string, has map[string]bool) {
	before := m.named[name]
	m.named[name] = has
	for at := range before {
		if !m.wantedLocked(at) {
			m.book.nameHas(slices.Index(m.seeds, at), false)
		}
	}
	for at := range has {
		i := slices.Index(m.seeds, at)
		if i < 0 {
			i = m.book.freeSeed()
		}
		switch {
		case before[at] || m.given[at]: // it is looked for already
		case i == len(m.seeds) && i < maxSeeds:
			m.seeds = append(m.seeds, at)
			m.book.nameHas(i, true)
		case i < len(m.seeds):
			m.seeds[i] = at
			m.book.nameHas(i, true)
		default:
			delete(has, at) // there is no room: the next answer may find some
		}
	}
}

// wantedLocked reports whether an address is to be looked for.
//
// +checklocks:m.mu
func (m *Mesh) wantedLocked(at string) bool {
	for _, has := range m.named {
		if has[at] {
			return true
		}
	}
	return m.given[at]
}

// seedsNow are the addresses at which this node looks for members.
func (m *Mesh) seedsNow() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seeds)
}
