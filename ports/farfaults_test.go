package ports

import (
	"net"
	"sync"
	"testing"

	"exnet/fabric"
	"exnet/fabric/link/attach/wire"
	"exnet/node/rpc"
	"exnet/node/rpc/caller"
)

// Before each message between two nodes, the way between them goes, or one of them is killed. Each
// port is told of the end of its peer, and the nodes that live keep nothing of the pair.
func TestFarFaults(t *testing.T) {
	for killed, name := range []string{"the server's node is killed", "the client's node is killed", "the way goes"} {
		t.Run(name, func(t *testing.T) {
			at := int64(0)
			for at < farFault(t, killed, at) && !t.Failed() {
				at++
			}
			if at < 3 {
				t.Errorf("only %d messages", at)
			}
		})
	}
}

// farFault has two ports be connected, and ended, with a fault before one of the messages of their
// nodes. It returns how many messages there were. killed: which node is; 2: none, the way goes.
func farFault(t *testing.T, killed int, at int64) int64 {
	hs, all := newHosts(t, 2)
	var fault sync.WaitGroup
	defer fault.Wait()
	hs.mu.Lock()
	hs.sending = func(n int64) {
		if n != at {
			return
		}
		hs.mu.Lock()
		hs.down = true
		hs.mu.Unlock()
		fault.Go(func() {
			if killed < 2 {
				all[killed].Close()
			}
			for i, h := range all {
				if i != killed {
					h.FarDown(all[1-i].cfg.Node, onlySession)
				}
			}
		})
	}
	hs.mu.Unlock()
	server, to, _ := all[0].openAt(t, 50, caller.Root)
	client, _, _ := all[1].openAt(t, 60, caller.Root)
	send := func(conn *net.UnixConn, m wire.Message) bool {
		b, err := m.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Write(b)
		return err == nil // else its node was killed
	}
	var heard, told sync.WaitGroup
	heard.Add(1)
	told.Go(func() { // the server's port
		once := sync.OnceFunc(heard.Done)
		defer once()
		for {
			m, ok := hearFar(server)
			if !ok || m.Op == wire.OpGone {
				return
			}
			once()
		}
	})
	connected := send(client, wire.Message{Op: wire.OpConnect, Number: 1, Unit: fabric.UnitVELO, Addr: to})
	for connected {
		m, ok := hearFar(client)
		if connected = ok; m.Op == wire.OpConnect {
			connected = m.Status == wire.StatusOK
			break
		}
	}
	if connected {
		heard.Wait()
	}
	client.Close()
	all[1].idle(t)
	if connected {
		told.Wait() // else nobody has told the server of a peer, or has told it of its end as well
	}
	server.Close()
	told.Wait()
	fault.Wait()
	for i, h := range all {
		if i == killed && hs.sends.Load() > at {
			continue
		}
		h.idle(t)
		h.still(t)
		eventually(t, "nothing is left of the pair", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, f := range h.fars {
				if len(f.pairs) > 0 || len(f.asked) > 0 {
					return false
				}
			}
			return true
		})
	}
	return hs.sends.Load()
}

// hearFar reads what a port is told. False: its node has ended.
func hearFar(conn *net.UnixConn) (m wire.Message, ok bool) {
	in, err := rpc.NewInbound(conn, wire.MessageSize, wire.Descriptors)
	if err != nil {
		return m, false
	}
	b, fds, err := in.Next()
	fds.Close()
	ok = err == nil && m.UnmarshalBinary(b) == nil
	return m, ok
}
