package exntun

import (
	"bytes"
	"testing"

	"exnet/node/control"
)

func TestPortsText(t *testing.T) {
	var b bytes.Buffer
	writePorts(&b, &control.Ports{Node: 1, Ports: []control.Port{
		{
			VPID: 16, Unit: "rma", PID: 4711, UID: 1000, Program: "pong", Memory: 1 << 20, Peers: 2, Queued: 17, Slots: 8192,
			Counters: control.PortCounters{Sent: 100000, Received: 5, PutBytes: 6 << 30, GetBytes: 64, Waits: 3, Errors: 1, Registered: 1 << 20},
		},
		{VPID: 17, Unit: "velo", Program: "bad\x1b[2J|name", Slots: 128, Queued: 128, Peers: 1},
	}})
	b.WriteString("\n")
	writePorts(&b, &control.Ports{Node: 2})
	b.WriteString("\n")
	writeRegisters(&b, &control.Registers{Node: 2, Registers: []control.Register{
		{Addr: 0x1008, Name: "receive.coalesce_usecs", Value: 50, Writable: true}, {Addr: 0x2000, Name: "velo.sent", Value: 1 << 40},
	}})
	golden(t, "ports.txt", b.String())
}

func TestParseRegister(t *testing.T) {
	if s, err := parseRegister("receive.mode=0x2"); err != nil || s == nil || *s != (control.SetRegister{Name: "receive.mode", Value: 2}) {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := parseRegister(""); s != nil || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	for _, wrong := range []string{"receive.mode", "receive.mode=", "receive.mode=-1", "receive.mode=fast"} {
		if _, err := parseRegister(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
