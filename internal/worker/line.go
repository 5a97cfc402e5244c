package worker

import (
	"encoding/json"
	"fmt"
)

// line is a line from a worker. Exactly one field is set.
type line[T any] struct {
	Note   T      `json:"note,omitempty"`
	Result T      `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

type (
	sent     = line[any]
	received = line[json.RawMessage]
)

// decode stores field, the expected field of l, in what v points to.
func decode(l received, field json.RawMessage, what string, v any) error {
	if field == nil {
		return fmt.Errorf("a worker sent note %q and result %q for %s", l.Note, l.Result, what)
	}
	if err := json.Unmarshal(field, v); err != nil {
		return fmt.Errorf("a worker sent %s for %s: %w", field, what, err)
	}
	return nil
}
