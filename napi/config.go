package napi

import (
	"errors"
	"fmt"
	"time"
)

// Defaults, as in Linux.
const (
	DefaultBudget       = 64                   // NAPI_POLL_WEIGHT, and thesis 5.4.6.2
	DefaultInlineBudget = 300                  // net.core.netdev_budget
	DefaultInlineTime   = 2 * time.Millisecond // net.core.netdev_budget_usecs
)

// Bounds of a configuration.
const (
	MaxBudget = 1<<(WorkBuckets-1) - 1 // 32767: the histogram's last bucket
	MaxDelay  = time.Second            // a longer Coalesce.Delay is likely a wrong unit
)

// Errors of this package.
var (
	// ErrInvalid says that a configuration cannot work. The error that wraps it
	// names the field.
	ErrInvalid = errors.New("invalid configuration")

	// ErrClosed says that the Context is closed; make a new one.
	ErrClosed = errors.New("napi: context is closed")

	// ErrRunning says that Run was called twice.
	ErrRunning = errors.New("napi: context is already running")
)

// Mode says when a Context polls.
type Mode uint8

const (
	// ModeNAPI masks the interrupt that arrives and polls until nothing is
	// left: figure 5.15.
	ModeNAPI Mode = iota

	// ModeInterrupt handles one frame per interrupt and unmasks it at once,
	// as drivers did before NAPI ("EXN IRQ" in figure 5.26). Run's goroutine
	// waits for each interrupt (Config.Event). Unmasking it while work is
	// pending raises it again. Coalescing does not apply.
	ModeInterrupt

	// ModeBusyPoll masks all interrupts and lets Run's goroutine poll all the
	// time (Linux: SO_PREFER_BUSY_POLL). It occupies a core. Until Run is
	// called it works as ModeNAPI.
	ModeBusyPoll
)

func (m Mode) String() string {
	switch m {
	case ModeNAPI:
		return "napi"
	case ModeInterrupt:
		return "interrupt"
	case ModeBusyPoll:
		return "busy"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// Set parses the name that String gives, so that a *Mode is a flag.Value.
func (m *Mode) Set(s string) error {
	for v := ModeNAPI; v <= ModeBusyPoll; v++ {
		if s == v.String() {
			*m = v
			return nil
		}
	}
	return fmt.Errorf("napi: %w: mode %q; use napi, interrupt or busy", ErrInvalid, s)
}

// MarshalText returns the name that String gives.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is Set.
func (m *Mode) UnmarshalText(b []byte) error { return m.Set(string(b)) }

// Event carries an interrupt to the thread that serves it. An eventfd is one: UIO and
// VFIO signal a device's interrupts to a driver in user space through it.
//
// Concurrency: Signal may be called from many goroutines, Wait from one.
type Event interface {
	// Signal ends the Wait under way, or the next one. Several before a Wait
	// count as one. It must not block.
	Signal()
	// Wait blocks until Signal is called, unless that has happened since the
	// last Wait.
	Wait()
}

// token is an Event within the process.
type token chan struct{}

func (t token) Signal() {
	select {
	case t <- struct{}{}:
	default:
	}
}

func (t token) Wait() { <-t }

// Config configures a Context. The zero value has the defaults.
type Config struct {
	// Clock is the source of time. Default: the system's monotonic clock.
	Clock Clock

	// Event is what Run's goroutine waits for in ModeInterrupt, once for each
	// frame. Default: a channel within the process, which costs less than an
	// interrupt.
	Event Event

	// Mode is the initial mode. Default ModeNAPI.
	Mode Mode

	// InlineBudget is how many frames a run in the goroutine that raised the
	// interrupt may handle before Run's goroutine takes over. Default
	// DefaultInlineBudget. If it is negative, Run's goroutine does all polling
	// (Linux: "threaded" NAPI). Without Run there is no bound.
	InlineBudget int

	// InlineTime bounds such a run in time. Default DefaultInlineTime. The
	// clock is read after a poll that used up its budget and after every
	// fourth poll, and the time counts from the first reading. So the common
	// run, one poll of a few frames, does not read the clock.
	InlineTime time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.Clock == nil {
		c.Clock = SystemClock()
	}
	if c.InlineBudget <= 0 {
		c.InlineBudget = DefaultInlineBudget
	}
	if c.InlineTime == 0 {
		c.InlineTime = DefaultInlineTime
	}
	if c.Event == nil {
		c.Event = make(token, 1)
	}
	if c.Mode > ModeBusyPoll {
		return c, fmt.Errorf("napi: %w: %v", ErrInvalid, c.Mode)
	}
	if c.InlineTime < 0 {
		return c, fmt.Errorf("napi: %w: InlineTime %v is negative", ErrInvalid, c.InlineTime)
	}
	return c, nil
}

// Coalesce says which interrupts of a source are held back, and for how long
// (ethtool -C). The zero value holds back none.
type Coalesce struct {
	// Frames is the number of announced events that delivers the interrupt
	// (rx-frames). With 0 only Delay counts; with 1 no interrupt is held back.
	// More than 1 needs a Delay, or the last frames of a burst would wait for
	// ever. Events that the unit does not announce, because they arrive before
	// its interrupt is unmasked again, do not count: the interrupt then comes
	// later, at the latest after Delay.
	Frames int

	// Delay is the time from the first event to the interrupt (rx-usecs), at
	// most MaxDelay. With 0 no interrupt is held back.
	Delay time.Duration

	// Adaptive replaces both by the dynamic ITR of the ixgbe driver
	// (adaptive-rx): see ITRState.
	Adaptive bool
}

// Validate returns ErrInvalid, wrapped, if c cannot work.
func (c Coalesce) Validate() error {
	switch {
	case c.Frames < 0:
		return fmt.Errorf("napi: %w: Coalesce.Frames %d is negative", ErrInvalid, c.Frames)
	case c.Delay < 0 || c.Delay > MaxDelay:
		return fmt.Errorf("napi: %w: Coalesce.Delay %v; use 0..%v", ErrInvalid, c.Delay, MaxDelay)
	case c.Adaptive && (c.Frames != 0 || c.Delay != 0):
		return fmt.Errorf("napi: %w: Coalesce is either Adaptive or Frames and Delay", ErrInvalid)
	case c.Frames > 1 && c.Delay == 0:
		return fmt.Errorf("napi: %w: Coalesce.Frames %d without Delay: the last frames would never be announced",
			ErrInvalid, c.Frames)
	}
	return nil
}

// isOff reports that c holds back no interrupt.
func (c Coalesce) isOff() bool { return !c.Adaptive && (c.Delay == 0 || c.Frames == 1) }

// SourceConfig configures a Source.
type SourceConfig struct {
	// Name names the source in the statistics: "velo", "rma".
	Name string

	// Poller is the unit's driver. It is required.
	Poller Poller

	// Budget is how many frames one Poll may handle. Default DefaultBudget, at
	// most MaxBudget.
	Budget int

	Coalesce Coalesce
}

func (c SourceConfig) withDefaults() (SourceConfig, error) {
	if c.Budget == 0 {
		c.Budget = DefaultBudget
	}
	if c.Poller == nil {
		return c, fmt.Errorf("napi: %w: source %q has no Poller", ErrInvalid, c.Name)
	}
	if c.Budget < 1 || c.Budget > MaxBudget {
		return c, fmt.Errorf("napi: %w: source %q: budget %d; use 1..%d", ErrInvalid, c.Name, c.Budget, MaxBudget)
	}
	return c, c.Coalesce.Validate()
}
