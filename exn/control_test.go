package exn

import (
	"errors"
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
