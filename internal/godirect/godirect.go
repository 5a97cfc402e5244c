// Package godirect decides which connections of a Go program that exn-go built are
// direct sockets. Package net of such a program calls it; nothing else does.
//
// The environment decides, as it does for exn-run's library: a program that has none of
// EXNET_LOOPBACK, EXNET_RULES and EXNET_BROKER has plain TCP, and no goroutine more.
//
// Concurrency: all functions may be called from many goroutines.
package godirect

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"exnet/directsockets"
	"exnet/directsockets/broker"
)

// on is decided once: what the program does to its environment later says nothing.
var on = wanted()

func wanted() bool {
	if marker == "" {
		return false // not built by exn-go
	}
	if os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() {
		return false // the environment is of somebody with fewer rights
	}
	for _, name := range []string{"EXNET_LOOPBACK", "EXNET_RULES", broker.PathEnv} {
		if _, set := os.LookupEnv(name); set {
			return true
		}
	}
	return false
}

// On reports whether connections may be direct.
func On() bool { return on }

// client is the process's, which begins to look for a broker when it is first asked for.
var client = sync.OnceValue(func() *broker.Client {
	c, err := broker.Dial(broker.ClientConfig{})
	if err != nil { // no memory for a small table: there is none for segments
		return nil
	}
	return c
})

// Begin makes a Conn of a TCP connection on which nothing has been sent or received
// yet, and takes it. server says that it was accepted. nil: it stays plain, and the
// caller's.
func Begin(shadow net.Conn, server bool) *directsockets.Conn {
	c := client()
	if c == nil {
		return nil
	}
	conn, err := directsockets.NewConn(shadow, server, directsockets.Config{Broker: c})
	if err != nil {
		return nil
	}
	return conn
}

// Listen announces a listener, and returns what ends that, to be called before the
// listener is closed. nil: it is not announced.
func Listen(raw syscall.RawConn, local netip.AddrPort) (hide func()) {
	c := client()
	if c == nil {
		return nil
	}
	return c.Listen(broker.Socket{Conn: raw, Local: local}, nil).Close
}
