package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// failing is a writer whose writes end with an error.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestOutput(t *testing.T) {
	full, other := errors.New("disk full"), errors.New("other")
	for _, c := range []struct {
		w         io.Writer
		err, want error
	}{
		{&strings.Builder{}, nil, nil},
		{&strings.Builder{}, other, other},
		{failing{full}, nil, full},
		{failing{full}, other, other},
		{failing{io.ErrClosedPipe}, nil, nil},
	} {
		out := NewOutput(c.w)
		fmt.Fprint(out, "result")
		if err := out.Check(c.err); err != c.want {
			t.Errorf("%v, %v: %v, want %v", c.w, c.err, err, c.want)
		}
		if Unwrap(out) != c.w || Unwrap(c.w) != c.w {
			t.Errorf("%v is not what is unwrapped", c.w)
		}
	}
}
