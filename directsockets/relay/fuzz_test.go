package relay

import (
	"bytes"
	"testing"

	"exnet/directsockets/segment"
)

// FuzzMessages has the decoders of what a peer sends read any bytes, as one batch and each message
// of it as each kind: they stay within, and what they take comes out as it went in.
func FuzzMessages(f *testing.F) {
	o := open{id: 1, nla: 2, size: segment.Config{Slots: 16, Ring: 65536}, info: segment.Info{Client: clientAddr, Server: serverAddr}}
	for _, p := range [][]byte{
		o.append(nil), attached{5, 6, 7, 8}.append(nil), back{8, 9}.append(nil), batch{1, 2, 3, 4}.append(nil), selection{1, 2, 3, 4}.append(nil), hello{newest, 1, 2, 3}.append(nil), resume{1, 2, 3, 4, 5, 6, 7, 8}.append(nil),
		appendMark(nil, segment.Mark{Flags: segment.MarkReturned, Off: 5}), appendNLA(nil, 1<<40), appendID(nil, 7), appendID(appendID(nil, 7), 8),
	} {
		head := make([]byte, headLen)
		putHead(head, 1, 2, len(p))
		f.Add(append(append(head, p...), head...))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, _, payload, rest, ok := parseHead(p); ok; _, _, payload, rest, ok = parseHead(rest) {
			if len(payload)+len(rest)+headLen > len(p) {
				t.Fatalf("%d bytes, then %d, of %d", len(payload), len(rest), len(p))
			}
			decodes(t, payload)
		}
		decodes(t, p)
	})
}

// decodes reads a payload as that of each kind.
func decodes(t *testing.T, p []byte) {
	t.Helper()
	same := func(what string, err error, again []byte) {
		if err == nil && !bytes.Equal(again, p) {
			t.Errorf("%s %x becomes %x", what, p, again)
		}
	}
	o, err := parseOpen(p)
	same("OPEN", err, o.append(nil))
	a, err := parseAttached(p)
	same("ATTACHED", err, a.append(nil))
	b, err := parseBack(p)
	same("BACK", err, b.append(nil))
	c, err := parseBatch(p)
	same("BATCH", err, c.append(nil))
	s, err := parseSelection(p)
	same("SELECT", err, s.append(nil))
	hi, err := parseHello(p)
	same("HELLO", err, hi.append(nil))
	nla, err := parseNLA(p)
	same("LEND", err, appendNLA(nil, nla))
	id, err := parseID(p)
	same("ID", err, appendID(nil, id))
	id, number, err := parseTaken(p)
	same("TAKEN", err, appendID(appendID(nil, id), number))
	if put, info, err := parseInfo(p); err == nil {
		same("RMA_INFO", err, append(appendID(nil, uint32(put)), info...))
	}
	id, number, err = parseAnswer(p)
	same("ANSWER", err, appendID(appendID(nil, id), number))
	if m, err := parseMark(p); err == nil { // without what is zero
		if again, err := parseMark(appendMark(nil, m)); err != nil || again != m {
			t.Errorf("MARK %+v becomes %+v: %v", m, again, err)
		}
	}
}
