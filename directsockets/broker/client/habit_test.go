package client

import "testing"

func TestHabit(t *testing.T) {
	var h Habit
	want := func(steps int, after string) {
		t.Helper()
		if got := h.Steps(); got != steps {
			t.Errorf("%s: %d steps, want %d", after, got, steps)
		}
	}
	end := func(n int, sends, bytes uint64) {
		for range n {
			h.Ended(sends, bytes)
		}
	}
	end(3, 2, 0)
	want(0, "three short ones")
	end(1, 127, 1<<20-1)
	want(1, "four")
	end(50, 2, 0)
	want(6, "many")
	end(1, 128, 0)
	end(1, 1, 1<<20)
	want(4, "two long ones")
	end(9, 128, 0)
	want(0, "all long")
}
