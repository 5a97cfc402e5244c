package lnet

import (
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
)

func goldenHeader() Header {
	return Header{
		Dst: NIDOf(3), Src: NIDOf(0x0102), DstPID: 0x11121314, SrcPID: 0x21222324, Type: MessagePut, PayloadLength: 0x43210,
		Handle: Handle{0x3132333435363738, 0x4142434445464748}, MatchBits: 0x5152535455565758,
		HdrData: 0x6162636465666768, Portal: 0x71, Offset: 0x81828384,
	}
}

var goldenHeaderBytes = strings.Join([]string{
	"0300000000005845", // dest_nid
	"0201000000005845", // src_nid
	"14131211",         // dest_pid
	"24232221",         // src_pid
	"01000000",         // type
	"10320400",         // payload_length
	"3837363534333231", // ack_wmd: wh_interface_cookie
	"4847464544434241", // ack_wmd: wh_object_cookie
	"5857565554535251", // match_bits
	"6867666564636261", // hdr_data
	"71000000",         // ptl_index
	"84838281",         // offset
}, "")

func TestHeaderGolden(t *testing.T) {
	b, err := goldenHeader().AppendBinary([]byte{0xaa})
	if got := hex.EncodeToString(b); err != nil || got != "aa"+goldenHeaderBytes {
		t.Errorf("encoded\n%s, %v, want\naa%s", got, err, goldenHeaderBytes)
	}
	var h Header
	if err := h.UnmarshalBinary(b[1:]); err != nil || h != goldenHeader() {
		t.Errorf("decoded %+v, %v", h, err)
	}
	for n := range HeaderLen {
		if err := h.UnmarshalBinary(b[1 : 1+n]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if got := NIDOf(3).String(); got != "3@ex" {
		t.Errorf("NID %q", got)
	}
}

func TestHeaderImpossible(t *testing.T) {
	for _, h := range []Header{
		{Type: 4}, {Type: MessagePut, PayloadLength: MaxPayload + 1}, {Type: MessageGet, Length: MaxPayload + 1},
		{Type: MessageAck, PayloadLength: 1}, {Type: MessageGet, PayloadLength: 1},
	} {
		if _, err := h.AppendBinary(nil); !errors.Is(err, ErrHeader) {
			t.Errorf("%+v: %v", h, err)
		}
	}
}

func FuzzHeader(f *testing.F) {
	b, _ := hex.DecodeString(goldenHeaderBytes)
	f.Add(b)
	for typ := range byte(5) {
		b[24] = typ
		f.Add(append([]byte(nil), b...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h, again Header
		if h.UnmarshalBinary(b) != nil {
			return
		}
		c, err := h.AppendBinary(nil)
		if err != nil || len(c) != HeaderLen || again.UnmarshalBinary(c) != nil || again != h {
			t.Fatalf("%+v does not survive: %v", h, err)
		}
	})
}
