package directsockets

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"exnet/directsockets/broker/client"
	"exnet/directsockets/segment"
)

// Config configures connections. The zero value of a field means its default.
type Config struct {
	// Off: plain TCP, always.
	Off bool
	// Eager: the client's side offers a segment as soon as it is connected, so that even its
	// first bytes may go there. Default: once the connection has outlived its first request.
	Eager bool
	// UpgradeSends is the number of sends after which a connection counts as such. Default 2.
	// While connections of the process that were offered a segment end early, before 128 sends
	// and 1 MiB, the default grows with their number, up to these, and so does that of
	// UpgradeBytes; but not if either is set.
	UpgradeSends int
	// UpgradeBytes is the number of bytes, in both directions together, after which it does so,
	// too. Default 16 KiB.
	UpgradeBytes int
	fixed        bool // one of them is set
	// Slots of a VELO queue: a power of two, 16..4096. Default 128.
	Slots int
	// Ring is the size of an RMA ring in bytes: a multiple of 4096, 64 KiB..1 GiB.
	// Default 2 MiB. It takes memory as it is used: 1 MiB at most until a stream has become long,
	// or the peer reads slowly.
	Ring int
	// MaxRing and MaxSlots are the largest ring and VELO queue that the server's side takes: a
	// segment that a client offers with more is refused, and the connection stays on TCP. So a
	// client has a server use 2 * (MaxRing + 128 * MaxSlots) bytes for a connection at most.
	// Defaults 4 MiB and 4096, or this side's own Ring and Slots if they are larger.
	MaxRing, MaxSlots int
	// Threshold is the number of bytes up to which a send goes in VELO messages.
	// Default 480.
	Threshold int
	// Chunk is the number of bytes that are copied to the ring at a time. Default
	// 64 KiB, and less in a small ring.
	Chunk int
	// Spin is the longest time for which a call polls before it sleeps. Default 50 µs;
	// negative: it never polls.
	Spin time.Duration
	// Wait is how long Dial and Accept wait for a segment, so that nearly every byte goes
	// there: for tests, with Eager. Default: not at all.
	Wait time.Duration
	// ByRule: connections to loopback addresses are direct only if EXNET_LOOPBACK is 1, or a
	// rule says so, as under exn-run. Default: the program has asked for direct sockets, and
	// only a rule of EXNET_RULES keeps a connection on TCP.
	ByRule bool
	// Explain has the statistics say of UDP sockets why no flow is offered, as exn-run --explain
	// asks for.
	Explain bool
	// Broker is the client of the broker that serves the shadows' network namespace.
	// Default: that of the process, which looks for the broker where SPEC.md says.
	// Shadows of a TCP stack in user space need one that takes the program at its word
	// (broker.Server.Client).
	Broker *client.Client
}

const (
	defaultMaxRing  = 4 << 20
	defaultMaxSlots = 4096 // 512 KiB
)

// ErrConfig says that a Config has a value out of range.
var ErrConfig = errors.New("directsockets: configuration out of range")

// checkedConfig is a Config as it was given, and with its defaults.
type checkedConfig struct{ given, full Config }

// lastConfig is the last one that was checked: most connections of a program have the same.
var lastConfig atomic.Pointer[checkedConfig]

// withDefaults returns a checked copy, which nobody changes.
func (c Config) withDefaults() (*Config, error) {
	if last := lastConfig.Load(); last != nil && last.given == c {
		return &last.full, nil
	}
	checked := &checkedConfig{given: c}
	var err error
	if checked.full, err = c.checked(); err != nil {
		return nil, err
	}
	lastConfig.Store(checked)
	return &checked.full, nil
}

func (c Config) checked() (Config, error) {
	c.fixed = c.UpgradeSends != 0 || c.UpgradeBytes != 0
	if c.UpgradeSends == 0 {
		c.UpgradeSends = 2
	}
	if c.UpgradeBytes == 0 {
		c.UpgradeBytes = 16 << 10
	}
	if c.Spin == 0 {
		c.Spin = spinMax
	}
	c.Spin = max(c.Spin, 0)
	if c.MaxRing == 0 {
		c.MaxRing = max(defaultMaxRing, c.Ring)
	}
	if c.MaxSlots == 0 {
		c.MaxSlots = max(defaultMaxSlots, c.Slots)
	}
	if c.MaxRing < 0 || c.MaxSlots < 0 || c.UpgradeSends < 0 || c.UpgradeBytes < 0 || c.Threshold < 0 || c.Chunk < 0 {
		return c, fmt.Errorf("%w: only Spin may be negative", ErrConfig)
	}
	if err := (segment.Config{Slots: c.Slots, Ring: c.Ring}).Check(); err != nil {
		return c, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return c, nil
}

// acceptsSizes reports whether the server's side accepts a segment of these sizes.
func (c *Config) acceptsSizes(s segment.Config) bool {
	return s.Ring <= c.MaxRing && s.Slots <= c.MaxSlots
}
