package relay

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/segment"
	"exnet/node/rpc/rpctest"
)

// leaves reports whether an Engine leaves its connections alone, until their programs or the peer
// do something.
func (h *host) leaves(t *testing.T) (all bool) {
	t.Helper()
	done := make(chan struct{})
	if err := h.engine.doLater(func() {
		defer close(done)
		all = len(h.engine.conns) > 0
		for _, c := range h.engine.conns {
			h.engine.pumpConn(c, 100)
			all = all && c.state != stateOver && !c.armBell()
		}
	}); err != nil {
		t.Fatal(err)
	}
	<-done
	return all
}

// Whatever a program writes to a segment that it has not taken, it is not looked at all the time.
// When it takes the segment then, its node is told.
func TestWritesBeforeTaking(t *testing.T) {
	const attention, state, queues = 1024 + 128, 1024 + 136, 4096 // of the server's side: SPEC.md, 2
	for _, tt := range []struct {
		what string
		at   int
		word uint32
	}{
		{"nothing", state, 0},
		{"OFFERED", state, 1},
		{"FALLEN_BACK", attention, 4},
		{"RETURNED", attention, 32},
		{"a flag without a name", attention, 128},
		{"a message", queues, 1},
	} {
		hosts := newHosts(t, 2, nil)
		client := hosts[0].call(t, hosts[1], segment.Config{})
		server := hosts[1].answerWith(t, func(e *segment.End) {
			word := e.Segment().Exposed()[tt.at:]
			if tt.at == queues {
				word = word[e.Segment().Config().Slots*128:]
			}
			binary.LittleEndian.PutUint32(word, tt.word)
			if !hosts[1].leaves(t) {
				t.Errorf("%s: the node looks again and again", tt.what)
			}
			binary.LittleEndian.PutUint32(word, 0)
		})
		if err := server.Attach(); err != nil {
			t.Fatal(err)
		}
		until(t, "attached", client.Attached)
	}
}

// A program that sends descriptors over its doorbell, which nobody asks for, loses its connection.
// That to close them takes long keeps nobody waiting, not even if they are read last of all.
func TestSendsWhatTakesLong(t *testing.T) {
	for _, tt := range []struct {
		others int
		closes bool
	}{{0, false}, {20, false}, {20, true}} {
		hosts, client, server := pair(t, segment.Config{}, nil)
		slow, release := rpctest.Lingers(t)
		late := time.AfterFunc(hang, func() {
			t.Errorf("%+v: the node waits", tt)
			release()
		})
		// A signal of the runtime ends a close that lingers: so the trash closes nothing yet.
		empties := make(chan struct{})
		hosts[0].engine.trash.Do(func() { <-empties })
		asked, answers := make(chan struct{}), make(chan struct{})
		if err := hosts[0].engine.doLater(func() { close(asked); <-answers }); err != nil {
			t.Fatal(err)
		}
		<-asked // it reads nothing before all is sent
		raw, err := client.Bell().SyscallConn()
		if err == nil {
			cerr := raw.Control(func(bell uintptr) {
				err = unix.Sendmsg(int(bell), []byte{0}, unix.UnixRights(append(make([]int, tt.others), slow)...), nil, 0)
			})
			err = errors.Join(err, cerr)
		}
		if err == nil {
			err = unix.Close(slow) // not the last: one is on its way
		}
		if err != nil {
			t.Fatal(err)
		}
		if tt.closes { // it is over before its doorbell is read
			_ = client.Close(false)
			if err := hosts[0].engine.doLater(func() {
				for _, c := range hosts[0].engine.conns {
					hosts[0].engine.endConn(c, actClose)
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		close(answers)
		until(t, "forgotten", func() bool { return hosts[0].count() == 0 })
		if !tt.closes {
			if err := end(t, server, true); err != segment.ErrReset {
				t.Errorf("%+v: the far program: %v", tt, err)
			}
		}
		if hosts[0].engine.trash.Len() < 2 {
			t.Errorf("%+v: the descriptor is lost, or closed", tt)
		}
		late.Stop()
		release()
		close(empties)
		until(t, "closed", func() bool { return hosts[0].engine.trash.Len() == 0 })
	}
}
