package daemon

import (
	"os"
	"strconv"
	"strings"
	"time"

	"exnet/directsockets/relay"
)

// inNamespace runs f in the namespace of the interface.
func (d *Daemon) inNamespace(f func() error) error {
	if d.ns == nil {
		return f()
	}
	return d.ns.Do(f)
}

// tcpPatience is how long TCP repeats data in the namespace of the interface. Where that cannot be
// read, it is the default.
func (d *Daemon) tcpPatience() time.Duration {
	retries := uint64(relay.DefaultRetries)
	_ = d.inNamespace(func() error {
		b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_retries2")
		if err != nil {
			return err
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 8); err == nil {
			retries = n
		}
		return nil
	})
	return relay.Patience(uint8(retries))
}
