package fabrictest

import (
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/fabric/link"
	"exnet/fabric/link/mem"
	"exnet/fabric/link/shm"
	"exnet/fabric/nic"
)

// Link is a kind of link that a behaviour test runs over.
type Link struct {
	Name string
	// New returns n NICs with the node IDs 0 to n-1, joined all to all.
	New func(tb testing.TB, n int) []*nic.NIC
	// Lazy: that a mailbox is open is known to the peers only after a while.
	Lazy bool
	// Ports: the NICs are programs' shares of those of nodes (nic.Attach). A source has the credits
	// of a port's flow, only memory of Alloc is lent, and there are no groups.
	Ports bool
}

// Links returns all kinds of links.
func Links() []Link {
	return []Link{{Name: "mem", New: New}, {Name: "shm", New: NewSHM}, {Name: "shm-driven", New: NewDriven}}
}

// NewSHM is New over shm links, all ends of which are in this process.
func NewSHM(tb testing.TB, n int) []*nic.NIC {
	tb.Helper()
	return newSHM(tb, n, func() link.Driver { return nil })
}

// NewDriven is NewSHM with a Driver for each NIC.
func NewDriven(tb testing.TB, n int) []*nic.NIC {
	tb.Helper()
	return newSHM(tb, n, func() link.Driver { return NewDriver(tb) })
}

func newSHM(tb testing.TB, n int, driver func() link.Driver) []*nic.NIC {
	tb.Helper()
	drivers := make([]link.Driver, n)
	nics := make([]*nic.NIC, n)
	for i := range nics {
		nics[i] = NewNIC(tb, fabric.NodeID(i))
		if err := mem.NewFabric().Attach(nics[i]); err != nil { // the way to itself
			tb.Fatal(err)
		}
		drivers[i] = driver()
		for j := range i {
			joinSHM(tb, nics[i], nics[j], shm.Config{Driver: drivers[i]}, shm.Config{Driver: drivers[j]})
		}
	}
	return nics
}

// JoinSHM joins two NICs by a link that is closed when the test ends, and returns
// its ends.
func JoinSHM(tb testing.TB, x, y *nic.NIC) (lx, ly *shm.Link) {
	tb.Helper()
	return joinSHM(tb, x, y, shm.Config{}, shm.Config{})
}

func joinSHM(tb testing.TB, x, y *nic.NIC, cx, cy shm.Config) (lx, ly *shm.Link) {
	tb.Helper()
	a, b := Sockets(tb, unix.SOCK_STREAM)
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		ly, err = shm.Connect(y, b, cy)
	}()
	lx, errx := shm.Connect(x, a, cx)
	<-done
	if errx != nil || err != nil {
		tb.Fatal(errx, err)
	}
	tb.Cleanup(func() {
		_, _ = lx.Close(), ly.Close() // a test may have closed them
		<-lx.Done()
		<-ly.Done()
	})
	return lx, ly
}

// Sockets returns the two ends of a connected Unix socket, of type SOCK_STREAM or
// SOCK_SEQPACKET.
func Sockets(tb testing.TB, kind int) (a, b *net.UnixConn) {
	tb.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	var conns [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		c, err := net.FileConn(f)
		if err := f.Close(); err != nil {
			tb.Fatal(err)
		}
		if err != nil {
			tb.Fatal(err)
		}
		u, ok := c.(*net.UnixConn)
		if !ok {
			tb.Fatalf("a socket is a %T", c)
		}
		conns[i] = u
	}
	return conns[0], conns[1]
}

// Eventually waits until f returns true, and fails if that takes too long.
func Eventually(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	for end := time.Now().Add(3 * time.Minute); !f(); time.Sleep(20 * time.Microsecond) {
		if time.Now().After(end) {
			tb.Fatalf("%s: not within minutes", what)
		}
	}
}

// Wrapped is a NIC whose way to its peers goes through Wrap.
type Wrapped struct {
	*nic.NIC
	Wrap func(link.Port) link.Port
}

// Connect implements mem.NIC.
func (w *Wrapped) Connect(to fabric.NodeID, p link.Port) { w.NIC.Connect(to, w.Wrap(p)) }
