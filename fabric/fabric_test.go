package fabric

import (
	"errors"
	"testing"
)

func TestNodeIDSplitsIntoSegmentAndLocal(t *testing.T) {
	for _, tt := range []struct {
		id             NodeID
		segment, local int
	}{
		{0, 0, 0},
		{1023, 0, 1023},
		{1024, 1, 0},
		{65535, 63, 1023},
	} {
		if s, l := tt.id.Segment(), tt.id.Local(); s != tt.segment || l != tt.local {
			t.Errorf("node %d: segment %d, local %d; want %d, %d", tt.id, s, l, tt.segment, tt.local)
		}
	}
}

func TestRanges(t *testing.T) {
	if !VPID(255).Valid() || VPID(256).Valid() {
		t.Error("VPIDs end at 255")
	}
	if !GroupBroadcast.Valid() || GroupID(64).Valid() {
		t.Error("groups end at 63")
	}
}

func TestUnitString(t *testing.T) {
	for u, want := range map[Unit]string{UnitVELO: "velo", UnitRMA: "rma", 0: "unit(0)"} {
		if got := u.String(); got != want {
			t.Errorf("Unit %d: %q, want %q", u, got, want)
		}
	}
}

func TestStatusErrors(t *testing.T) {
	for _, tt := range []struct {
		status Status
		name   string
		err    error
	}{
		{StatusOK, "ok", nil},
		{StatusProtection, "protection", ErrProtection},
		{StatusNoVPID, "no-vpid", ErrPeerDown},
		{StatusDevice, "device", ErrDevice},
		{StatusPeerDown, "peer-down", ErrPeerDown},
		{StatusOverrun, "overrun", ErrOverrun},
		{StatusBadResponse, "bad-response", ErrInvalid},
		{statusEnd, "status(7)", ErrInvalid},
	} {
		if got := tt.status.String(); got != tt.name {
			t.Errorf("Status %d: %q, want %q", tt.status, got, tt.name)
		}
		if err := tt.status.Err(); !errors.Is(err, tt.err) {
			t.Errorf("Status %v: error %v, want %v", tt.status, err, tt.err)
		}
	}
}
