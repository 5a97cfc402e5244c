package godirect

import (
	"testing"

	"exnet/directsockets/segment"
)

// The sizes that the environment sets are those that exn-run's library would take from it.
func TestSettings(t *testing.T) {
	type sizes struct{ slots, ring, maxSlots, maxRing int }
	for _, tt := range []struct {
		env  map[string]string
		want sizes
	}{
		{nil, sizes{}},
		{map[string]string{"EXNET_DS_SLOTS": "256", "EXNET_DS_RING": "2097152"}, sizes{slots: 256, ring: 2 << 20}},
		{map[string]string{"EXNET_DS_MAX_SLOTS": "64", "EXNET_DS_MAX_RING": "65536"}, sizes{maxSlots: 64, maxRing: 64 << 10}},
		{map[string]string{"EXNET_DS_MAX_SLOTS": "0", "EXNET_DS_MAX_RING": "0"}, sizes{maxSlots: 1, maxRing: 1}},
		{map[string]string{"EXNET_DS_RING": "65537"}, sizes{ring: 64 << 10}},
		{map[string]string{"EXNET_DS_SLOTS": "100", "EXNET_DS_RING": "1000"}, sizes{}},
		{map[string]string{"EXNET_DS_SLOTS": "8192", "EXNET_DS_RING": "1073741825"}, sizes{ring: 1 << 30}},
		{map[string]string{"EXNET_DS_SLOTS": "-16", "EXNET_DS_RING": "1M", "EXNET_DS_MAX_RING": "99999999999999999999"}, sizes{}},
	} {
		c := settings(func(name string) string { return tt.env[name] })
		if got := (sizes{c.Slots, c.Ring, c.MaxSlots, c.MaxRing}); got != tt.want {
			t.Errorf("%v: %+v, want %+v", tt.env, got, tt.want)
		}
		if err := (segment.Config{Slots: c.Slots, Ring: c.Ring}).Check(); err != nil {
			t.Errorf("%v: %v", tt.env, err)
		}
	}
}
