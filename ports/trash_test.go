package ports

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/node/rpc/rpctest"

	"golang.org/x/sys/unix"
)

// openFiles is how many descriptors this process has.
func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// A user sends a descriptor that takes an hour to close, and as many after it as may wait. The
// node refuses its connections, and they cost nothing, however many there are; others are served,
// and the user is when its descriptor is closed.
func TestSlowDescriptors(t *testing.T) {
	n := nodes(t, 1)[0]
	name := fmt.Sprintf("@exn-ports-slow-%d", os.Getpid())
	n.listen(t, name, n.Process)
	dial := func(uid int) (conn *net.UnixConn) {
		asUser(t, uid, func() (err error) {
			conn, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
			return err
		})
		return conn
	}
	open, _ := wire.Message{Op: wire.OpOpen, Unit: fabric.UnitVELO, A: wire.Version}.AppendBinary(nil)
	served := func(uid int) bool {
		conn := dial(uid)
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		var r wire.Message
		buf := make([]byte, wire.MessageSize)
		_, err := conn.Write(open)
		if err == nil {
			_, err = conn.Read(buf)
		}
		return err == nil && r.UnmarshalBinary(buf) == nil && r.Status == wire.StatusOK
	}
	await := func(what string, f func() bool) {
		t.Helper()
		for late := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
			if time.Now().After(late) {
				t.Fatalf("not in a minute: %s", what)
			}
		}
	}
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	send := func(fds ...int) bool {
		conn := dial(1000)
		defer conn.Close()
		return rpctest.TrySend(t, conn, []byte("nothing"), fds...)
	}
	slow, end := rpctest.Lingers(t)
	for !send(slow) { // the node was faster
		end()
		slow, end = rpctest.Lingers(t)
	}
	// What comes before the slow one is closed at once.
	await("the node has as many as it takes", func() bool {
		many := make([]int, 200)
		for i := range many {
			var err error
			if many[i], err = unix.FcntlInt(uintptr(null), unix.F_DUPFD_CLOEXEC, 0); err != nil {
				t.Fatal(err)
			}
		}
		send(many...)
		for range 50 {
			if n.hub.Trash.Full(1000) {
				return true
			}
			time.Sleep(10 * time.Millisecond)
		}
		return false
	})
	before := openFiles(t)
	for range 300 {
		conn := dial(1000)
		_, _ = conn.Write(open) // it may be refused already
		conn.Close()
	}
	await("refused connections are closed", func() bool { return openFiles(t) <= before+10 })
	if served(1000) || !served(1001) {
		t.Error("the wrong user is served")
	}
	end()
	await("the user is served again", func() bool { return served(1000) })
}
