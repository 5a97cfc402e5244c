package paths

import (
	"encoding/json"
	"fmt"
	"net"

	"exnet/node"
)

// carried is what the nodes of a path have carried since they began, as they count it themselves.
type carried struct {
	Interrupts uint64 `json:"interrupts"` // that their NICs raised
	Bytes      uint64 `json:"bytes"`      // of the frames that they received
}

func carriedBy(nodes []*node.Node) (c carried) {
	for _, n := range nodes {
		s := n.Interface.Stats()
		c.Interrupts += s.NIC.VELO.Interrupts + s.NIC.RMA.Interrupts
		c.Bytes += s.Port.RxBytes
	}
	return c
}

// perGB returns the interrupts for 10^9 bytes since before; 0 if nothing was carried.
func (c carried) perGB(before carried) float64 {
	if c.Bytes == before.Bytes {
		return 0
	}
	return float64(c.Interrupts-before.Interrupts) * 1e9 / float64(c.Bytes-before.Bytes)
}

// serveCarried answers each connection to a Unix socket with what count returns, until stop is
// called.
func serveCarried(path string, count func() carried) (stop func(), err error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("counting interrupts: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = json.NewEncoder(c).Encode(count()) // who asked has gone, or sees the error
			c.Close()
		}
	}()
	return func() {
		l.Close()
		<-done
	}, nil
}

// askCarried asks what serveCarried serves.
func askCarried(path string) (c carried, err error) {
	conn, err := net.Dial("unix", path)
	if err == nil {
		err = json.NewDecoder(conn).Decode(&c)
		conn.Close()
	}
	if err != nil {
		return c, fmt.Errorf("counting interrupts: %w", err)
	}
	return c, nil
}
