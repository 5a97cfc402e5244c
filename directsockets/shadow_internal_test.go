package directsockets

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"time"
)

// TestReaderHearsOfFailedShadow: a reader that waits for the segment ends with the error of its
// shadow, after what was in the segment, also if the peer answers nothing: as one on another host
// whose link is away.
func TestReaderHearsOfFailedShadow(t *testing.T) {
	a, b := directPairs(t)()
	defer a.Close()
	defer b.Close()
	if _, err := b.Write([]byte("last")); err != nil {
		t.Fatal(err)
	}
	if !b.tx.take() || !b.rx.take() { // it answers nothing
		t.Fatal("closed")
	}
	defer b.releaseTX()
	defer b.releaseRX()
	got, failed := make(chan string, 1), make(chan error, 1)
	go func() {
		buf := make([]byte, 4)
		_, err := io.ReadFull(a, buf)
		got <- string(buf)
		if err == nil {
			_, err = a.Read(buf)
		}
		failed <- err
	}()
	if s := <-got; s != "last" {
		t.Fatal(s)
	}
	b.lingerShadow(0)
	if err := b.shadow.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("it waits on\n" + a.Debug())
	}
}
