package exntun

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

const procNetTCP = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0200020A:1451 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 40001 1 0000000000000000 100 0 0 10 0
   1: 0200020A:1451 0100020A:D21C 01 00000000:00000000 02:000A7214 00000000     0        0 40002 2 0000000000000000 20 4 30 10 -1
   2: cut off
`

const procNetPacket = `sk               RefCnt Type Proto  Iface R Rmem   User   Inode
0000000000000000 3      3    0003   2     1 0      0      50001
cut off
`

func TestAddSockets(t *testing.T) {
	for _, c := range []struct {
		proto, table string
		want         []string
	}{
		{"tcp", procNetTCP, []string{"tcp40001"}}, // listening ones only
		{"udp6", procNetTCP, []string{"udp640001", "udp640002"}},
		{"packet", procNetPacket, []string{"packet50001"}},
	} {
		found := make(map[string]bool)
		addSockets(found, c.proto, c.table)
		if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.proto, got, c.want)
		}
	}
}

func TestPrefixWriter(t *testing.T) {
	var b strings.Builder
	w := prefixWriter{to: &b, prefix: "node 2: "}
	for _, text := range []string{"one\ntw", "", "o\n", "\nthree"} {
		if n, err := fmt.Fprint(&w, text); err != nil || n != len(text) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	w.writeOpenLine()
	w.writeOpenLine()
	if got, want := b.String(), "node 2: one\nnode 2: two\nnode 2: \nnode 2: three\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestPrefixWriterError(t *testing.T) {
	w := prefixWriter{to: fullWriter{}}
	if _, err := fmt.Fprintln(&w, "x"); err == nil {
		t.Error("no error")
	}
}
