package stream_test

import (
	"testing"

	"go.uber.org/goleak"

	"exnet/fabric/fabrictest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	for _, l := range fabrictest.StreamLinks() {
		t.Run(l.Name, func(t *testing.T) { fabrictest.Suite(t, l) })
	}
}
