package relay

import (
	"math/bits"
	"time"
)

// Times of Linux's TCP (include/net/tcp.h).
const (
	minRTO = 200 * time.Millisecond
	maxRTO = 120 * time.Second
)

// DefaultRetries is net.ipv4.tcp_retries2 if nobody has set it.
const DefaultRetries = 15

var defaultPatience = Patience(DefaultRetries)

// Patience is how long TCP repeats data that nobody acknowledges, with net.ipv4.tcp_retries2 of so
// many retries: 924.6 s with 15 (tcp_model_timeout in net/ipv4/tcp_timer.c; networking/ip-sysctl of
// the kernel's documentation).
func Patience(retries uint8) time.Duration {
	doublings := bits.Len(uint(maxRTO/minRTO)) - 1
	n := int(retries)
	return (2<<min(n, doublings)-1)*minRTO + time.Duration(max(0, n-doublings))*maxRTO
}
