// Package godirect decides which connections of a Go program that exn-go built are
// direct sockets. Package net of such a program calls it; nothing else does.
//
// The environment decides, as it does for exn-run's library: a program with none of
// EXNET_LOOPBACK, EXNET_RULES and EXNET_BROKER has plain TCP, and no extra goroutine.
//
// Concurrency: all functions may be called from many goroutines.
package godirect

import (
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"exnet/directsockets"
	"exnet/directsockets/broker/client"
	"exnet/directsockets/segment"
	"exnet/directsockets/udp"
	"exnet/internal/rules"
	"exnet/internal/shm"
)

// on is decided once: what the program does to its environment later says nothing.
var on = wanted()

// The client's goroutine begins with the program: one that began with the first connection
// could be in a bubble of testing/synctest, which would wait for it.
func init() {
	if on {
		process()
	}
}

func wanted() bool {
	if marker == "" {
		return false // not built by exn-go
	}
	if os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() {
		return false // the environment is of somebody with fewer rights
	}
	for _, name := range []string{rules.EnvLoopback, rules.Env, client.PathEnv} {
		if _, set := os.LookupEnv(name); set {
			return true
		}
	}
	return false
}

// On reports whether connections may be direct.
func On() bool { return on }

// connections is how many the statistics have room for, as in exn-run's library. They take
// memory as they are used.
const connections = 16384

// process is the Client of this process, which looks for a broker from the beginning.
var process = sync.OnceValue(func() *client.Client {
	c, err := client.Dial(client.Config{Connections: connections, KeepClosed: explains()})
	if err != nil { // no memory for a small table: there is none for segments
		return nil
	}
	return c
})

// config is that of all connections.
var config = sync.OnceValue(func() directsockets.Config {
	c := settings(os.Getenv)
	c.Broker = process()
	return c
})

// settings are those of the environment. Like exn-run's library it can be tuned, for tests and
// those who measure, by EXNET_DS_SENDS (0: an offer at once), _BYTES, _SLOTS, _RING and _WAIT (ms);
// what a server takes is bounded by _MAX_SLOTS and _MAX_RING. A value that is not allowed counts as
// none.
func settings(get func(name string) string) (c directsockets.Config) {
	number := func(name string) int {
		n, err := strconv.ParseUint(get(name), 10, 31)
		if err != nil {
			return 0
		}
		return int(n)
	}
	most := func(name string) int { // 0, which a server may say, is the default in a Config
		if get(name) == "0" {
			return 1
		}
		return number(name)
	}
	c.Eager = get("EXNET_DS_SENDS") == "0"
	c.UpgradeSends = number("EXNET_DS_SENDS")
	c.UpgradeBytes = number("EXNET_DS_BYTES")
	c.Slots = number("EXNET_DS_SLOTS")
	if (segment.Config{Slots: c.Slots}).Check() != nil {
		c.Slots = 0
	}
	c.Ring = number("EXNET_DS_RING") &^ (shm.PageSize - 1)
	if (segment.Config{Ring: c.Ring}).Check() != nil {
		c.Ring = 0
	}
	c.MaxSlots, c.MaxRing = most("EXNET_DS_MAX_SLOTS"), most("EXNET_DS_MAX_RING")
	c.Wait = time.Duration(number("EXNET_DS_WAIT")) * time.Millisecond
	c.ByRule = true
	c.Explain = get("EXNET_EXPLAIN") == "1"
	return c
}

// policy decides, as in package directsockets.
var policy = sync.OnceValue(func() *rules.Policy { return rules.FromEnvironment(io.Discard) })

// explains: exn-run --explain wants to hear of connections that stay TCP, too.
var explains = sync.OnceValue(func() bool { return os.Getenv("EXNET_EXPLAIN") == "1" })

// plain reports whether a connection, or a listener, is not worth a look.
func plain(role rules.Role, server netip.AddrPort, listener bool) bool {
	action, _ := policy().Decide(role, server, listener)
	return action != rules.Direct
}

// classify gives a connection that stays plain its class; package directsockets does so for
// the others.
func classify(shadow net.Conn, role rules.Role, server netip.AddrPort) {
	if s, ok := shadow.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil { // or it is closed already
			policy().Classify(raw, role, server)
		}
	}
}

// Begin makes a Conn of a TCP connection on which nothing has been sent or received
// yet, and takes it. server says that it was accepted. nil: it stays plain, and the
// caller's.
func Begin(shadow net.Conn, server bool) *directsockets.Conn {
	role, end := rules.Client, shadow.RemoteAddr()
	if server {
		role, end = rules.Server, shadow.LocalAddr()
	}
	a, ok := end.(*net.TCPAddr)
	if !ok {
		return nil
	}
	at := unmapped(a.AddrPort())
	if !explains() && plain(role, at, false) || process() == nil {
		classify(shadow, role, at)
		return nil
	}
	conn, err := directsockets.NewConn(shadow, server, config())
	if err != nil {
		return nil
	}
	return conn
}

// Listen announces a listener, and returns what ends that, to be called before the
// listener is closed. nil: it is not announced.
func Listen(raw syscall.RawConn, local netip.AddrPort) (hide func()) {
	if local = unmapped(local); plain(rules.Server, local, true) {
		return nil
	}
	c := process()
	if c == nil {
		return nil
	}
	return c.Listen(client.Socket{Conn: raw, Local: local}, nil).Close
}

// Datagrams makes what carries the datagrams of a UDP socket through memory. nil: there is nothing
// that could, or it is connected to an address that a rule, or the lack of one, leaves to the
// kernel.
func Datagrams(raw syscall.RawConn, local, remote netip.AddrPort) *udp.Socket {
	if remote.IsValid() {
		action, _ := policy().DecideUDP(rules.Client, unmapped(remote), false)
		if action == rules.TCP && !explains() {
			return nil
		}
	}
	if process() == nil {
		return nil
	}
	c := config()
	return directsockets.NewUDPSocket(raw, local, c)
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
