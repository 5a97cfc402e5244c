package paths

import (
	"testing"
)

func TestRemoteAddr(t *testing.T) {
	for host, want := range map[string]string{
		"10.0.0.1": "10.0.0.1:7640", "10.0.0.1:80": "10.0.0.1:80", "name": "name:7640",
		"fd00::1": "[fd00::1]:7640", "[fd00::1]": "[fd00::1]:7640", "[fd00::1]:80": "[fd00::1]:80",
	} {
		if got := RemoteAddr(host); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}
