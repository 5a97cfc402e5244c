package udp

import (
	"testing"

	"exnet/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }
