package emp

import (
	"sync"
	"testing"
	"time"
)

// Many that change something one after the other all get their turn, however long the
// last one waits: only a holder that does not go on is given up.
func TestLockQueue(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	const hold = 700 * time.Millisecond
	start := time.Now()
	var all sync.WaitGroup
	for range int(lockWait/hold) + 2 {
		d, err := openDir(path)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			f, err := d.lock()
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(hold)
			f.Close()
		})
	}
	all.Wait()
	if took := time.Since(start); took < lockWait {
		t.Errorf("all had their turn in %v: that was no queue", took)
	}
}
