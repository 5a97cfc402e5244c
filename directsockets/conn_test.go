package directsockets_test

import "testing"

func TestUpgrade(t *testing.T) {
	c, s := directPair(t)
	t.Log(c.Stats())
	t.Log(s.Stats())
}
