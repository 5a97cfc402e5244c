package counter

import (
	"maps"
	"slices"
	"sync/atomic"
	"testing"
)

type live struct{ TxOk, TxBadMAC, RxGSOLost atomic.Uint64 }

type snapshot struct{ TxOk, TxBadMAC, RxGSOLost uint64 }

func TestLoadAll(t *testing.T) {
	var l live
	l.TxOk.Add(1)
	l.TxBadMAC.Add(2)
	l.RxGSOLost.Add(3)
	var s snapshot
	Load(&l, &s)
	if s != (snapshot{1, 2, 3}) {
		t.Fatalf("Load: %+v", s)
	}
	var names []string
	for name := range All(s) {
		names = append(names, name)
	}
	if want := []string{"tx_ok", "tx_bad_mac", "rx_gso_lost"}; !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
	if got := maps.Collect(All(s))["rx_gso_lost"]; got != 3 {
		t.Errorf("rx_gso_lost = %d, want 3", got)
	}
	for range All(s) {
		break // stops where the caller does
	}
}

func TestLoadMismatch(t *testing.T) {
	for _, to := range []any{&struct{ A uint64 }{}, &struct{ TxOk, RxGSOLost, TxBadMAC uint64 }{}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Load into %T did not panic", to)
				}
			}()
			Load(&live{}, to)
		}()
	}
}
