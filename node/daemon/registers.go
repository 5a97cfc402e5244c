package daemon

import (
	"fmt"
	"slices"
	"time"

	"exnet/internal/counter"
	"exnet/napi"
	"exnet/node/control"
)

// Addresses of the register file (thesis 3.2.6), in steps of 8 bytes: what the node is, the
// receive mode and its thresholds, which root may write, and the counters of the NIC's units.
const (
	registersNode     = 0x0000
	registersReceive  = 0x1000
	registersCounters = 0x2000
	registersPorts    = 0x3000 // what has gone through the ports of processes
)

// registerFile is the node's register file, for its processes and those of other nodes.
type registerFile struct{ d *Daemon }

// listRegisters returns all registers, in the order of their addresses.
func (f registerFile) listRegisters() []control.Register {
	d := f.d
	i := d.node.Interface
	c := i.Coalesce()
	var list []control.Register
	add := func(base uint64, writable bool, name string, value uint64) {
		addr := base
		if n := len(list); n > 0 && list[n-1].Addr >= base {
			addr = list[n-1].Addr + 8
		}
		list = append(list, control.Register{Addr: addr, Name: name, Value: value, Writable: writable})
	}
	add(registersNode, false, "node.id", uint64(d.member.ID()))
	add(registersNode, false, "node.uptime_seconds", uint64(time.Since(d.started)/time.Second))
	add(registersNode, false, "node.mtu", uint64(d.cfg.MTU))
	add(registersNode, false, "node.eager_threshold", uint64(i.EagerThreshold()))
	add(registersReceive, true, "receive.mode", uint64(i.Mode()))
	add(registersReceive, true, "receive.coalesce_usecs", uint64(c.Delay/time.Microsecond))
	add(registersReceive, true, "receive.coalesce_frames", uint64(c.Frames))
	add(registersReceive, true, "receive.adaptive", map[bool]uint64{true: 1}[c.Adaptive])
	for name, value := range d.nic.Stats().All() {
		add(registersCounters, false, name, value)
	}
	for _, o := range d.services {
		s := o.about()
		for name, value := range counter.All(o.counters()) {
			if s.registers != 0 {
				add(s.registers, false, s.what+"."+name, value)
			}
		}
	}
	return list
}

// ReadRegister implements ports.Registers.
func (f registerFile) ReadRegister(addr uint64) (uint64, bool) {
	list := f.listRegisters()
	i := slices.IndexFunc(list, func(r control.Register) bool { return r.Addr == addr })
	if i < 0 {
		return 0, false
	}
	return list[i].Value, true
}

// WriteRegister implements ports.Registers.
func (f registerFile) WriteRegister(addr, value uint64) bool {
	list := f.listRegisters()
	i := slices.IndexFunc(list, func(r control.Register) bool { return r.Addr == addr })
	return i >= 0 && f.writeRegister(list[i].Name, value) == nil
}

// writeRegister changes a register by its name.
func (f registerFile) writeRegister(name string, value uint64) error {
	var s control.Settings
	n := int64(min(value, 1<<40)) // keep a value that is too large positive
	switch name {
	case "receive.mode":
		if value > uint64(napi.ModeBusyPoll) {
			return fmt.Errorf("%w: mode %d: use 0 to %d", control.ErrSetting, value, napi.ModeBusyPoll)
		}
		s.Mode = new(napi.Mode(value))
	case "receive.coalesce_usecs":
		s.CoalesceUsecs = &n
	case "receive.coalesce_frames":
		s.CoalesceFrames = new(int(n))
	case "receive.adaptive":
		if value > 1 {
			return fmt.Errorf("%w: %s %d: use 0 or 1", control.ErrSetting, name, value)
		}
		s.Adaptive = new(value == 1)
	default:
		return fmt.Errorf("%w: no writable register %q", control.ErrSetting, name)
	}
	return f.d.Set(s)
}

// answerRegisters answers a client: the register file, after a change if there is to be one.
func (d *Daemon) answerRegisters(set *control.SetRegister) (*control.Registers, error) {
	f := registerFile{d}
	if set != nil {
		if err := f.writeRegister(set.Name, set.Value); err != nil {
			return nil, err
		}
	}
	return &control.Registers{Node: int(d.member.ID()), Registers: f.listRegisters()}, nil
}
