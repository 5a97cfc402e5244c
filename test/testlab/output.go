package testlab

import (
	"bytes"
	"sync"
)

// Output collects what a program writes, to be read meanwhile.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer // +checklocks:mu
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

// String is what was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
