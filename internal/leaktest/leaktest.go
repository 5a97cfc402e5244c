// Package leaktest finds what tests leave behind: goroutines, and packet buffers of netstack.
//
// # Architecture
//
// goleak lists the goroutines, netstack its buffers. Both want all to have ended when they are
// asked, or half a second later; on a busy machine what is about to end may not have run by then,
// so this package asks again until nothing is left, or something hangs.
//
// # Concurrency
//
// Main is a TestMain. None is for tests that run alone.
//
// # Limits
//
// For tests only. A leak is told after a minute.
package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
	"gvisor.dev/gvisor/pkg/refs"
)

// endWait is how long what is left may take to end: far longer than on any machine that works.
var endWait = time.Minute

// Main runs the tests, and fails if they leave a goroutine. The option is goleak.Cleanup.
func Main(m goleak.TestingM, option ...goleak.Option) {
	goleak.VerifyTestMain(waiting{m}, option...)
}

// waiting is tests of which those that passed end when their goroutines have.
type waiting struct{ goleak.TestingM }

func (p waiting) Run() int {
	code := p.TestingM.Run()
	if code == 0 {
		await(func() bool { return goleak.Find() == nil })
	}
	return code
}

// None fails the test if there are goroutines, except those that option names.
func None(t testing.TB, option ...goleak.Option) {
	t.Helper()
	await(func() bool { return goleak.Find(option...) == nil })
	goleak.VerifyNone(t, option...)
}

// Packets panics if there are packet buffers of netstack. refs.LeaksPanic is the mode since before
// the first was made.
func Packets() {
	await(noPackets)
	refs.DoLeakCheck()
}

func noPackets() (ok bool) {
	defer func() { ok = recover() == nil }()
	refs.DoRepeatedLeakCheck()
	return
}

func await(gone func() bool) {
	for end := time.Now().Add(endWait); !gone() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}
