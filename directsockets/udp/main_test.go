package udp

import (
	"fmt"
	"testing"

	"exnet/internal/leaktest"
)

// A step that the tables do not have fails whatever test comes to it.
func TestMain(m *testing.M) {
	steps.out = func(step outStep, ok bool) {
		if !ok {
			panic(fmt.Sprintf("there is no step %v from %v", step.what, step.from))
		}
	}
	steps.in = func(step inStep, ok bool) {
		if !ok {
			panic(fmt.Sprintf("there is no step %v from %v", step.what, step.from))
		}
	}
	leaktest.Main(m)
}
