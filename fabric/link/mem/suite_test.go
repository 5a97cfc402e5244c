package mem_test

import (
	"testing"

	"exnet/fabric/fabrictest"
)

func TestSuite(t *testing.T) { fabrictest.Suite(t, fabrictest.Links()[0]) }
