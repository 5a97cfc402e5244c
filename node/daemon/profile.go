package daemon

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"exnet/fabric/crossbar"
	"exnet/fabric/profile"
	"exnet/node/control"
)

// errNoProfile says that nothing is counted.
var errNoProfile = errors.New("no profile is under way: start one with exn-tun profile start")

// profiling is the profile of a node, while there is one.
type profiling struct {
	mu sync.Mutex
	// +checklocks:mu
	now *profile.Profile
	// +checklocks:mu
	begun time.Time
}

// Profile starts, reads or stops the node's profile, as want says.
func (d *Daemon) Profile(want string) (*control.Profile, error) {
	p := &d.profiling
	p.mu.Lock()
	defer p.mu.Unlock()
	switch want {
	case control.ProfileStart:
		p.now, p.begun = profile.New(), time.Now()
		d.nic.SetProfile(p.now)
		return nil, nil
	case control.ProfileRead, control.ProfileStop:
	default:
		return nil, fmt.Errorf("profile %q: use start, read or stop", want)
	}
	if p.now == nil {
		return nil, errNoProfile
	}
	if want == control.ProfileStop {
		d.nic.SetProfile(nil)
	}
	r := &control.Profile{Seconds: time.Since(p.begun).Seconds(), Flows: []control.ProfileFlow{}, Multicasts: []control.ProfileMulticast{}}
	for _, f := range p.now.Flows() {
		r.Flows = append(r.Flows, control.ProfileFlow{Flow: f, Wire: crossbar.Wire(f)})
	}
	for _, m := range p.now.Multicasts() {
		r.Multicasts = append(r.Multicasts, control.ProfileMulticast{Multicast: m, Wire: crossbar.WireMulticast(m)})
	}
	if want == control.ProfileStop {
		p.now = nil
	}
	return r, nil
}
