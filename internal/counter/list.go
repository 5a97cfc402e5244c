package counter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
)

// List is counters with their names, in the order in which to show them. Its JSON form is an
// object.
type List []Value

// Value is a counter of a List.
type Value struct {
	Name  string
	Value uint64
}

// Add adds counters, each with the name of their layer as a prefix.
func (l *List) Add(layer string, all iter.Seq2[string, uint64]) {
	for name, v := range all {
		*l = append(*l, Value{layer + name, v})
	}
}

// MarshalJSON implements json.Marshaler. It keeps the order.
func (l List) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, e := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendQuote(b, e.Name) // names are plain ASCII
		b = append(b, ':')
		b = strconv.AppendUint(b, e.Value, 10)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON implements json.Unmarshaler. It keeps the order.
func (l *List) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	t, err := d.Token()
	if err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	if t != json.Delim('{') {
		return fmt.Errorf("counters: %v is not the start of an object", t)
	}
	*l = nil
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return fmt.Errorf("counters: %w", err)
		}
		var v uint64
		if err := d.Decode(&v); err != nil {
			return fmt.Errorf("counter %v: %w", name, err)
		}
		*l = append(*l, Value{name.(string), v}) // keys are strings
	}
	return nil
}
