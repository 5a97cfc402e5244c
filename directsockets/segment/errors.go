package segment

import "errors"

// Errors of an End. All but ErrAgain are for good.
var (
	// ErrAgain says that nothing can be done now: spin, or arm and wait.
	ErrAgain = errors.New("segment: try again")
	// ErrFellBack says that the peer takes nothing more from the queue: call ReturnToTCP, then
	// continue on the shadow.
	ErrFellBack = errors.New("segment: peer has fallen back")
	// ErrCut says that the connection goes back to TCP, for a reason that Back gives: call Pause if
	// MayPause says so, else Demote, then continue on the shadow.
	ErrCut = errors.New("segment: the connection goes back to TCP")
	// ErrDemoted says that this direction continues on the shadow.
	ErrDemoted = errors.New("segment: direction continues on the shadow")
	// ErrPaused says that it does, and may be promoted again.
	ErrPaused = errors.New("segment: direction is paused")
	// ErrEnded says that this side has shut the direction down.
	ErrEnded = errors.New("segment: direction is shut down")
	// ErrClosed says that the peer's end is gone: the shadow says what follows.
	ErrClosed = errors.New("segment: peer has closed")
	// ErrReset says that the peer has closed abortively: ECONNRESET.
	ErrReset = errors.New("segment: connection reset by peer")
	// ErrEnding says that the queue holds the end of the direction, or that the peer
	// has gone: nothing can be returned to TCP any more. Receive to the end.
	ErrEnding = errors.New("segment: end of stream is in the queue")
	// ErrCorrupt says that the peer has written an impossible value (a breach): close the
	// connection with ECONNRESET. The End no longer touches the segment.
	ErrCorrupt = errors.New("segment: corrupt; reset the connection")
	// ErrNotPromoted says that this direction is still on the shadow.
	ErrNotPromoted = errors.New("segment: direction is not promoted")
)
