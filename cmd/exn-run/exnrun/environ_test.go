package exnrun

import (
	"errors"
	"strings"
	"testing"

	"exnet/directsockets/broker/client"
)

// exn-run says which variables have no effect.
func TestMisset(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"EXNET_DS_RING", "65536", ""},
		{"EXNET_DS_RING", "", ""},
		{"EXNET_DS_RING", "-5", "EXNET_DS_RING=-5 has no effect: use a number from 65536 to 1073741824"},
		{"EXNET_DS_RING", "1M", "EXNET_DS_RING=1M has no effect: use a number from 65536 to 1073741824"},
		{"EXNET_DS_SLOTS", "128", ""},
		{"EXNET_DS_SLOTS", "100", "EXNET_DS_SLOTS=100 has no effect: use a power of two from 16 to 4096"},
		{"EXNET_DS_MAX_RING", "0", ""},
		{"EXNET_DS_MAX_SLOTS", "4097", "EXNET_DS_MAX_SLOTS=4097 has no effect: use a number from 0 to 4096"},
		{"EXNET_CLASS", "64", "EXNET_CLASS=64 has no effect: use a number from 0 to 63"},
		{"EXNET_LOOPBACK", "yes", "EXNET_LOOPBACK=yes has no effect: use 0 or 1"},
	} {
		got := strings.Join(missetVariables(func(name string) string {
			if name == tt.name {
				return tt.value
			}
			return ""
		}), "; ")
		if got != tt.want {
			t.Errorf("%s=%s: %q, want %q", tt.name, tt.value, got, tt.want)
		}
	}
}

// The address sanitizer accepts the library, unless the user wants to know about it.
func TestASanOptions(t *testing.T) {
	for list, want := range map[string]string{
		"":                         "verify_asan_link_order=0",
		"detect_leaks=0":           "detect_leaks=0:verify_asan_link_order=0",
		"verify_asan_link_order=1": "verify_asan_link_order=1",
	} {
		if got := asanOptions(list); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
}

// Where the environment names a broker that is not there, none is started: it would be elsewhere.
func TestNamedBroker(t *testing.T) {
	t.Setenv(client.PathEnv, "/no/broker")
	for _, start := range []bool{false, true} {
		path, err := prepareBroker(start)
		if !errors.Is(err, client.ErrNoBroker) || !strings.Contains(err.Error(), "/no/broker") {
			t.Errorf("start %v: %q, %v", start, path, err)
		}
	}
}
