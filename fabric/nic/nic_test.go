package nic_test

import (
	"reflect"
	"strings"
	"testing"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
	"exnet/fabric/nic"
	"exnet/fabric/velo"
	"exnet/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// Every counter of every unit has a name, and its own value.
func TestStatsAreComplete(t *testing.T) {
	var s nic.Stats
	want := make(map[string]uint64)
	next := uint64(1)
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		unit := v.Field(i)
		for j := range unit.NumField() {
			unit.Field(j).SetUint(next)
			name := v.Type().Field(i).Name + "." + unit.Type().Field(j).Name
			want[strings.ToLower(name)] = next
			next++
		}
	}
	for name, value := range s.All() {
		key := strings.ReplaceAll(name, "_", "")
		if want[key] != value {
			t.Errorf("%s is %d, want %d", name, value, want[key])
		}
		delete(want, key)
	}
	if len(want) != 0 {
		t.Errorf("counters without a name: %v", want)
	}
	for range s.All() {
		break
	}
}

// Counters of endpoints outlive them.
func TestStatsOfClosedEndpoints(t *testing.T) {
	nics := fabrictest.New(t, 2)
	x := fabrictest.OpenVELO(t, nics[0], 1, velo.Config{})
	y := fabrictest.OpenVELO(t, nics[1], 1, velo.Config{})
	for range 3 {
		if err := x.Send(velo.Descriptor{Dst: 1, VPID: 1}, []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	y.Peek()
	y.Advance()
	y.EnableInterrupt()
	for _, e := range []*velo.Endpoint{x, y} {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := nics[0].Stats().VELO.Sent; n != 3 {
		t.Errorf("sent %d", n)
	}
	if n := nics[1].Stats().VELO.Received; n != 1 {
		t.Errorf("received %d", n)
	}
	if nics[0].ID() != fabric.NodeID(0) || nics[0].ATU() == nil {
		t.Error("ID or ATU")
	}
}
