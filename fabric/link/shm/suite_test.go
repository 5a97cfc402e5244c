package shm_test

import (
	"testing"

	"exnet/fabric/fabrictest"
)

func TestSuite(t *testing.T) {
	for _, l := range fabrictest.Links()[1:] {
		t.Run(l.Name, func(t *testing.T) { fabrictest.Suite(t, l) })
	}
}
