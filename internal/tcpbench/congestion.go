package tcpbench

import (
	"os"
	"slices"
	"strings"
)

// CongestionAllowed reports whether everybody may choose the congestion control.
func CongestionAllowed(name string) bool {
	list, err := os.ReadFile("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
	return err != nil || slices.Contains(strings.Fields(string(list)), name)
}

// SystemCongestion is the congestion control of connections that choose none, "" if it is not
// known.
func SystemCongestion() string {
	name, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}
