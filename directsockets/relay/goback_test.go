package relay

import (
	"bytes"
	"context"
	"testing"

	"exnet/directsockets/segment"
)

// partners lets hosts speak the newest version.
func partners(hosts []*host) {
	for i, h := range hosts {
		h.engine.Speak(hosts[1-i].nic.ID(), Versions.Newest)
	}
}

// shadow is what a program that goes back to TCP writes there.
func backToTCP(t *testing.T, e *segment.End) (wrote []byte) {
	t.Helper()
	until(t, "fallen back", e.PeerFallenBack)
	if err := e.ReturnToTCP(func(p []byte) (int, error) { wrote = append(wrote, p...); return len(p), nil }); err != nil {
		t.Fatal(err)
	}
	return wrote
}

// When a node is about to end, both programs of a connection go back to TCP, whichever node it is:
// what they have sent in the segment is there, what they send after that they write to the shadow,
// and neither gets a reset.
func TestGoBack(t *testing.T) {
	for ends, name := range []string{"client's node", "server's node"} {
		t.Run(name, func(t *testing.T) {
			hosts, client, server := pair(t, segment.Config{}, nil)
			partners(hosts)
			if err := send(t, client, []byte("before"), true); err != nil {
				t.Fatal(err)
			}
			big := pattern(9, 100_000)
			if err := send(t, server, big, true); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), hang)
			defer cancel()
			hosts[ends].engine.GoBack(ctx)
			if ctx.Err() != nil {
				t.Fatal("it waits for ever")
			}
			hosts[ends].stop()
			for _, e := range []*segment.End{client, server} {
				if wrote := backToTCP(t, e); len(wrote) > 0 {
					t.Errorf("%d bytes that have come come again", len(wrote))
				}
			}
			if got, err := receive(t, server, 6, true); err != nil || string(got) != "before" {
				t.Errorf("%q, %v", got, err)
			}
			if got, err := receive(t, client, len(big), true); err != nil || !bytes.Equal(got, big) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			for _, e := range []*segment.End{client, server} {
				if err := end(t, e, true); err != segment.ErrClosed {
					t.Errorf("after its messages a program finds %v", err)
				}
			}
		})
	}
}
