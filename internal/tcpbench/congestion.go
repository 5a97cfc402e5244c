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
