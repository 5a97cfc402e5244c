package rma

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"exnet/fabric"
	"exnet/fabric/atu"
)

var (
	goldenNotification = Notification{
		Writer: Completer, Command: CommandGet, Status: fabric.StatusDevice,
		Node: 0xA1B2, VPID: 0xC3, Len: 8 << 20, Local: 0x1122334455667788,
	}
	goldenNotificationBytes = []byte{
		0x00, 0x00, 0x80, // length 24
		0xB2, 0xA1, // node
		0x0D, 0x33, // command 2, VPID 10, status 4
		0x02,                                           // who 2, reserved 5, phase 1
		0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // local address
	}
)

func TestNotificationGolden(t *testing.T) {
	b, err := goldenNotification.AppendBinary([]byte{0xFF})
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(goldenNotificationBytes)
	if !bytes.Equal(b[1:], want) {
		t.Fatalf("encoded\n% x, want\n% x", b[1:], want)
	}
	for cut := range len(want) {
		var n Notification
		if err := n.UnmarshalBinary(want[:cut]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut to %d bytes: %v", cut, err)
		}
	}
	want[7] |= 0xFC // phase and reserved bits
	var n Notification
	if err := n.UnmarshalBinary(want); err != nil || n != goldenNotification {
		t.Errorf("decoded %+v, %v", n, err)
	}
}

func TestNotificationIsChecked(t *testing.T) {
	good := Notification{Writer: Requester, Command: CommandPut, Len: 1}
	for _, tt := range []struct {
		name   string
		change func(*Notification)
	}{
		{"writer 0", func(n *Notification) { n.Writer = 0 }},
		{"writer 4", func(n *Notification) { n.Writer = 4 }},
		{"command 0", func(n *Notification) { n.Command = 0 }},
		{"command 4", func(n *Notification) { n.Command = 4 }},
		{"status", func(n *Notification) { n.Status = 15 }},
		{"VPID", func(n *Notification) { n.VPID = 256 }},
		{"length 0", func(n *Notification) { n.Len = 0 }},
		{"length", func(n *Notification) { n.Len = MaxTransfer + 1 }},
	} {
		n := good
		tt.change(&n)
		if b, err := n.AppendBinary(nil); !errors.Is(err, fabric.ErrInvalid) || len(b) != 0 {
			t.Errorf("%s: % x, %v", tt.name, b, err)
		}
	}
	var n Notification
	if err := n.UnmarshalBinary(make([]byte, 16)); !errors.Is(err, fabric.ErrInvalid) || n != (Notification{}) {
		t.Errorf("zero bytes: %+v, %v", n, err)
	}
}

func FuzzNotification(f *testing.F) {
	f.Add(goldenNotificationBytes)
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var n, again Notification
		if n.UnmarshalBinary(b) != nil {
			return
		}
		e, err := n.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.UnmarshalBinary(e); err != nil || again != n {
			t.Fatalf("%+v became %+v, %v", n, again, err)
		}
	})
}

// Equations 5.1 and 5.2, and the sum of the fragments.
func TestLastFragment(t *testing.T) {
	const start = atu.NLA(1000)
	for _, tt := range []struct {
		n    int
		want atu.NLA
	}{
		{1, 1000},   // rest 1
		{495, 1000}, // rest 495
		{496, 1000}, // one full fragment: (I)
		{497, 1496}, // (II)
		{992, 1496}, // two full ones: (I)
		{MaxTransfer, 1000 + MaxTransfer - MaxTransfer%496}, // (II)
		{496 * 16912, 1000 + 496*16911},
	} {
		if got := LastFragment(start, tt.n); got != tt.want {
			t.Errorf("%d bytes: %d, want %d", tt.n, got, tt.want)
		}
	}
	for n := 1; n < 3000; n++ {
		at := start
		for left := n; left > MTU; left -= MTU {
			at += MTU
		}
		if got := LastFragment(start, n); got != at {
			t.Fatalf("%d bytes: %d, the fragments end at %d", n, got, at)
		}
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		Requester.String():           "requester",
		Completer.String():           "completer",
		Responder.String():           "responder",
		Writer(0).String():           "writer(0)",
		CommandGet.String():          "get",
		CommandPut.String():          "put",
		CommandPutImmediate.String(): "put-immediate",
		Command(0).String():          "command(0)",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Table 3.1, every combination of three bits and some that do not exist.
func TestNotifyCombinations(t *testing.T) {
	for n := Notify(0); n < 16; n++ {
		get := n == 0 || n == NotifyCompleter || n == NotifyCompleter|NotifyResponder
		put := n == 0 || n == NotifyRequester || n == NotifyRequester|NotifyCompleter
		if n.validGet() != get || n.validPut() != put {
			t.Errorf("%03b: GET %v, PUT %v", n, n.validGet(), n.validPut())
		}
	}
}
