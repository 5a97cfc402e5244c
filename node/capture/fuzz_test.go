package capture

import (
	"bytes"
	"encoding/binary"
	"testing"

	"exnet/exn"
	"exnet/exteth"
	"exnet/foreign"
)

// Any frames, with any metadata, become a capture that is read back whole: as many,
// of their lengths, and unchanged but for checksums.
func FuzzCapture(f *testing.F) {
	off, unfinished, finished := tcpFrame(f, 200)
	frame := func(off exteth.Offload, b []byte) []byte {
		return append(binary.BigEndian.AppendUint16(off.AppendWire(nil), uint16(len(b))), b...)
	}
	f.Add(uint16(0), frame(off, unfinished))
	f.Add(uint16(100), bytes.Join([][]byte{frame(off, unfinished), frame(exteth.Offload{}, finished), frame(exteth.Offload{}, nil)}, nil))
	f.Add(uint16(1), frame(off, unfinished[:20]))
	f.Fuzz(func(t *testing.T, snap uint16, in []byte) {
		var buf bytes.Buffer
		c, err := Start(Config{Writer: &buf, Interfaces: twoInterfaces, SnapLen: int(snap)})
		if err != nil {
			t.Fatal(err)
		}
		var frames [][]byte
		for i := 0; len(in) > exteth.OffloadLen+2; i++ {
			var off exteth.Offload
			bad := off.ParseWire(in) != nil
			n := min(int(binary.BigEndian.Uint16(in[exteth.OffloadLen:])), len(in)-exteth.OffloadLen-2)
			b := in[exteth.OffloadLen+2:][:n]
			in = in[exteth.OffloadLen+2+n:]
			if bad {
				continue
			}
			before := bytes.Clone(b)
			c.Tap(i%2).Frame(exn.RX+exn.Direction(i/2%2), off, foreign.Split(foreign.Of(b), make([]byte, exteth.HeadLen)))
			if !bytes.Equal(before, b) {
				t.Fatal("the tap wrote to the frame")
			}
			frames = append(frames, b)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		packets, names, stats := read(t, &buf)
		if len(names) != 2 || len(packets) != len(frames) || stats[0].PacketsReceived+stats[1].PacketsReceived != uint64(len(frames)) {
			t.Fatalf("%d frames, %d packets, %v, %+v", len(frames), len(packets), names, stats)
		}
		for i, p := range packets {
			want := frames[i]
			if p.Length != len(want) || len(p.data) > len(want) || snap != 0 && len(p.data) > int(snap) {
				t.Fatalf("packet %d: %d of %d bytes, of %d", i, len(p.data), p.Length, len(want))
			}
			changed := 0
			for k := range p.data {
				if p.data[k] != want[k] {
					changed++
				}
			}
			if changed > 2 {
				t.Fatalf("packet %d: %d bytes changed", i, changed)
			}
		}
	})
}
