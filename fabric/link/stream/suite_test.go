package stream_test

import (
	"testing"

	"exnet/fabric/fabrictest"
)

func TestSuite(t *testing.T) {
	for _, l := range fabrictest.StreamLinks() {
		t.Run(l.Name, func(t *testing.T) { fabrictest.Suite(t, l) })
	}
}
