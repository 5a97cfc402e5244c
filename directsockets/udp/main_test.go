package udp

import (
	"fmt"
	"testing"

	"exnet/internal/leaktest"
	"exnet/internal/steps"
)

// A step that the tables do not have fails whatever test comes to it.
func TestMain(m *testing.M) {
	outSteps.Tell(known)
	inSteps.Tell(known)
	leaktest.Main(m)
}

func known[S, E steps.Enum](step steps.Step[S, E], ok bool) {
	if !ok {
		panic(fmt.Sprintf("there is no step %v from %v", step.What, step.From))
	}
}
