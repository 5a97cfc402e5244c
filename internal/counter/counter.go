// Package counter names counters: a package keeps its counters in a struct of
// atomic.Uint64 and hands out copies as a struct of uint64; this package makes
// the copy and walks it, so that no counter is left out of a table or export.
package counter

import (
	"iter"
	"reflect"
	"strings"
	"sync/atomic"
	"unicode"
)

// All yields the fields of stats, a struct of uint64, in order, with their
// names in snake case: TxNoBuffer is tx_no_buffer, TxUnknownMAC tx_unknown_mac.
// It panics if a field has another type.
func All(stats any) iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		v := reflect.ValueOf(stats)
		for i := range v.NumField() {
			if !yield(snake(v.Type().Field(i).Name), v.Field(i).Uint()) {
				return
			}
		}
	}
}

// Load copies the counters in the struct of atomic.Uint64 that from points to
// into the struct of uint64 that to points to. Both have the same field names
// in the same order; it panics if they do not.
func Load(from, to any) {
	src, dst := reflect.ValueOf(from).Elem(), reflect.ValueOf(to).Elem()
	if src.NumField() != dst.NumField() {
		panic("counter: " + src.Type().String() + " and " + dst.Type().String() + " differ")
	}
	for i := range src.NumField() {
		name := src.Type().Field(i).Name
		if name != dst.Type().Field(i).Name {
			panic("counter: " + src.Type().String() + "." + name + " is not in its place in " + dst.Type().String())
		}
		dst.Field(i).SetUint(src.Field(i).Addr().Interface().(*atomic.Uint64).Load())
	}
}

func snake(name string) string {
	var b strings.Builder
	r := []rune(name)
	for i, c := range r {
		word := unicode.IsUpper(c) && i > 0 &&
			(unicode.IsLower(r[i-1]) || i+1 < len(r) && unicode.IsLower(r[i+1]))
		if word {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}
