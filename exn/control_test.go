package exn

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"exnet/fabric/fabrictest"
	"exnet/napi"
)

func TestControl(t *testing.T) {
	i, err := New(Config{NIC: fabrictest.New(t, 1)[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	if m, c := i.Mode(), i.Coalesce(); m != napi.ModeNAPI || c != (napi.Coalesce{}) {
		t.Errorf("at first %v, %+v", m, c)
	}
	want := napi.Coalesce{Frames: 8, Delay: 50 * time.Microsecond}
	if err := errors.Join(i.SetMode(napi.ModeInterrupt), i.SetCoalesce(want)); err != nil {
		t.Error(err)
	}
	if m, c := i.Mode(), i.Coalesce(); m != napi.ModeInterrupt || c != want {
		t.Errorf("got %v, %+v", m, c)
	}
	if err := i.SetCoalesce(napi.Coalesce{Frames: 8}); !errors.Is(err, napi.ErrInvalid) {
		t.Errorf("got %v, want %v", err, napi.ErrInvalid)
	}
}

// What NAPI counts as interrupts are those that the NIC has raised, in every mode; and
// in ModeInterrupt there is one at least for each frame and each notification.
func TestInterruptsAreReal(t *testing.T) {
	for _, tt := range []struct {
		mode napi.Mode
		coal napi.Coalesce
	}{
		{mode: napi.ModeNAPI},
		{mode: napi.ModeNAPI, coal: napi.Coalesce{Adaptive: true}},
		{mode: napi.ModeInterrupt},
	} {
		t.Run(fmt.Sprintf("%v,adaptive=%v", tt.mode, tt.coal.Adaptive), func(t *testing.T) {
			net := startNet(t, 2, Config{
				NAPI: napi.Config{Mode: tt.mode}, Coalesce: tt.coal, StallTime: time.Minute, TransferTimeout: time.Minute,
			})
			a, b := net.nodes[0], net.nodes[1]
			const frames = 200
			for i := range frames {
				a.post(t, a.frame(net.mac(b.id), uint32(i), []int{60, 400, 1500, 60000}[i%4]))
				if i%10 == 9 {
					a.Flush()
				}
			}
			got := 0
			eventually(t, "all frames", func() bool { got += len(b.frames.Take()); return got == frames })
			a.checkBuffers(t) // the last responder's notification was read
			for _, n := range net.nodes {
				s := n.Stats()
				for i, nic := range []uint64{s.NIC.VELO.Interrupts, s.NIC.RMA.Interrupts} {
					src := s.NAPI.Sources[i]
					if src.Interrupts != nic {
						t.Errorf("node %d, %s: NAPI counts %d interrupts, the NIC %d", n.id, src.Name, src.Interrupts, nic)
					}
					if events := []uint64{s.Port.RxEager + s.Port.RxRendezvous, src.Frames}[i]; tt.mode == napi.ModeInterrupt && src.Interrupts < events {
						t.Errorf("node %d, %s: %d interrupts for %d events", n.id, src.Name, src.Interrupts, events)
					}
				}
			}
		})
	}
}
