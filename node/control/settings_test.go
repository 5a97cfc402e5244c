package control

import (
	"errors"
	"strings"
	"testing"
	"time"

	"exnet/napi"
)

func TestSettings(t *testing.T) {
	static := napi.Coalesce{Frames: 4, Delay: 20 * time.Microsecond}
	for _, c := range []struct {
		settings string
		from, to napi.Coalesce
	}{
		{"mode=busy", static, static},
		{"coalesce-usecs=50", static, napi.Coalesce{Frames: 4, Delay: 50 * time.Microsecond}},
		{"coalesce-usecs=50 coalesce-frames=8", napi.Coalesce{}, napi.Coalesce{Frames: 8, Delay: 50 * time.Microsecond}},
		{"adaptive=on", static, napi.Coalesce{Adaptive: true}},
		{"adaptive=off", napi.Coalesce{Adaptive: true}, napi.Coalesce{}},
		{"adaptive=off", static, static},
		{"coalesce-usecs=50", napi.Coalesce{Adaptive: true}, napi.Coalesce{Delay: 50 * time.Microsecond}},
		{"coalesce-usecs=0 coalesce-frames=0", static, napi.Coalesce{}},
	} {
		var s Settings
		for text := range strings.FieldsSeq(c.settings) {
			if err := s.Parse(text); err != nil {
				t.Error(err)
			}
		}
		if got, err := s.Apply(c.from); err != nil || got != c.to {
			t.Errorf("%s: %+v became %+v, %v; want %+v", c.settings, c.from, got, err, c.to)
		}
	}
	for text, want := range map[string]string{
		"mode":               "use mode=",
		"mode=fast":          "use napi, interrupt or busy",
		"speed=9":            `no setting "speed"`,
		"adaptive=yes":       "use on or off",
		"coalesce-usecs=-1":  "use 0 to 1000000",
		"coalesce-usecs=1e6": "use 0 to 1000000",
		"coalesce-frames=x":  "a number of frames",
	} {
		if err := new(Settings).Parse(text); !errors.Is(err, ErrSetting) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	var s Settings
	if err := errors.Join(s.Parse("coalesce-usecs=5"), s.Parse("adaptive=on")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(napi.Coalesce{}); !errors.Is(err, napi.ErrInvalid) {
		t.Errorf("static and dynamic at once: %v", err)
	}
}

// FuzzSettings: what "exn-tun set" takes is valid, or says what to use.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{"mode=busy", "mode=", "coalesce-usecs=10", "coalesce-usecs=-1", "coalesce-frames=99999999999", "adaptive=on", "adaptive=1", "x", "=", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s Settings
		if err := s.Parse(text); err != nil {
			if !errors.Is(err, ErrSetting) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if s == (Settings{}) {
			t.Errorf("%q sets nothing", text)
		}
		if s.CoalesceUsecs != nil && (*s.CoalesceUsecs < 0 || *s.CoalesceUsecs > MaxCoalesceUsecs) || s.CoalesceFrames != nil && *s.CoalesceFrames < 0 {
			t.Errorf("%q: %+v", text, s)
		}
	})
}

// A name that is nearly one of a setting is answered with that.
func TestNearest(t *testing.T) {
	for name, want := range map[string]string{
		"mdoe": "mode", "coalesce_usecs": "coalesce-usecs", "coalesce-frame": "coalesce-frames", "adaptiv": "adaptive",
		"recieve": "", "": "", "x": "",
	} {
		err := new(Settings).Parse(name + "=1")
		if !errors.Is(err, ErrSetting) || want == "" && strings.Contains(err.Error(), "?") || want != "" && !strings.HasSuffix(err.Error(), ": did you mean "+want+"?") {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}
