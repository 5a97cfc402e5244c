package exntun

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	"exnet/node/control"
)

// reserveWhile makes a reservation and leaves a process behind that releases it when another
// process has ended, or on a signal.
func reserveWhile(ctx context.Context, p program, o routeOptions) error {
	if !isDetached() {
		return startDetached(ctx, p)
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	fd, err := unix.PidfdOpen(o.while, 0) // before: the number may be another's later
	if err != nil {
		return fmt.Errorf("--while: process %d: %w", o.while, err)
	}
	defer unix.Close(fd)
	var text string
	if err := whileOthersChange(func() (err error) {
		text, err = o.makeReservation()
		return err
	}); err != nil {
		return err
	}
	fmt.Fprint(p.stdout, text)
	if err := letGo(nil); err != nil {
		return errors.Join(err, releaseRoutes(ctx, p, o))
	}
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(readerPoll/time.Millisecond))
		if n > 0 || err != nil && err != unix.EINTR {
			break
		}
	}
	return whileOthersChange(func() error { return releaseRoutes(ctx, p, o) })
}

// changeTries is how often a change is tried that others' changes come before.
const changeTries = 100

// whileOthersChange repeats a change of the reservations that others' changes come before.
func whileOthersChange(change func() error) (err error) {
	for range changeTries {
		err = change()
		// The error has come through a control socket, as text.
		if err == nil || !strings.Contains(err.Error(), fabric.ErrAgain.Error()) || errors.Is(err, control.ErrNoNode) {
			return err
		}
		time.Sleep(time.Millisecond + rand.N(20*time.Millisecond))
	}
	return err
}
