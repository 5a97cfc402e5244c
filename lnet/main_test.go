package lnet

import (
	"testing"

	"exnet/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
