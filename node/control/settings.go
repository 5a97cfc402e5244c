package control

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"exnet/internal/cli"
	"exnet/napi"
)

// MaxCoalesceUsecs bounds how long frames may wait for others, in microseconds.
const MaxCoalesceUsecs = int64(napi.MaxDelay / time.Microsecond)

// ErrSetting is wrapped by the error for an unknown setting or an invalid value. The message
// names the valid ones.
var ErrSetting = errors.New("invalid setting")

// Settings are the settings that can change while a node runs; nil: unchanged.
type Settings struct {
	Mode           *napi.Mode `json:"mode,omitempty"`
	CoalesceUsecs  *int64     `json:"coalesce_usecs,omitempty"`
	CoalesceFrames *int       `json:"coalesce_frames,omitempty"`
	Adaptive       *bool      `json:"adaptive,omitempty"`
}

// settingsHelp lists what Parse accepts.
const settingsHelp = "mode=napi|interrupt|busy, coalesce-usecs=N, coalesce-frames=N or adaptive=on|off"

// Parse parses a setting such as mode=busy and stores it.
func (s *Settings) Parse(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("%w: %q: use %s", ErrSetting, text, settingsHelp)
	}
	wrong := func(use string) error { return fmt.Errorf("%w: %s=%s: use %s", ErrSetting, key, value, use) }
	switch key {
	case "mode":
		s.Mode = new(napi.Mode)
		if s.Mode.Set(value) != nil {
			return wrong("napi, interrupt or busy")
		}
	case "coalesce-usecs":
		d, err := cli.ParseMicroseconds(value, napi.MaxDelay)
		if err != nil {
			return fmt.Errorf("%w: %s=%s: %w", ErrSetting, key, value, err)
		}
		s.CoalesceUsecs = new(d.Microseconds())
	case "coalesce-frames":
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return wrong("a number of frames")
		}
		s.CoalesceFrames = new(int(n))
	case "adaptive":
		if value != "on" && value != "off" {
			return wrong("on or off")
		}
		s.Adaptive = new(value == "on")
	default:
		if near := cli.Closest(key, SettingNames); near != "" {
			return fmt.Errorf("%w: there is no setting %q: did you mean %s?", ErrSetting, key, near)
		}
		return fmt.Errorf("%w: there is no setting %q: use %s", ErrSetting, key, settingsHelp)
	}
	return nil
}

// SettingNames are the names that Parse knows.
var SettingNames = []string{"mode", "coalesce-usecs", "coalesce-frames", "adaptive"}

// Apply returns c with the settings applied. Static and dynamic coalescing exclude each other:
// setting one ends the other.
func (s Settings) Apply(c napi.Coalesce) (napi.Coalesce, error) {
	static := s.CoalesceUsecs != nil || s.CoalesceFrames != nil
	if s.Adaptive != nil {
		c.Adaptive = *s.Adaptive
		if c.Adaptive {
			c.Frames, c.Delay = 0, 0
		}
	} else if static {
		c.Adaptive = false
	}
	if s.CoalesceUsecs != nil {
		c.Delay = time.Duration(*s.CoalesceUsecs) * time.Microsecond
	}
	if s.CoalesceFrames != nil {
		c.Frames = *s.CoalesceFrames
	}
	return c, c.Validate()
}
