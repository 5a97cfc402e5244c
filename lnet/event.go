package lnet

import (
	"errors"
	"fmt"

	"exnet/fabric"
)

// EventType is what an event reports (lnet_event_kind).
type EventType uint8

// The types of events. An initiator sees SEND, ACK and REPLY, a target GET and PUT.
const (
	EventGet    EventType = iota + 1 // a peer's Get was served (LNET_EVENT_GET)
	EventPut                         // a peer's Put has arrived (LNET_EVENT_PUT)
	EventReply                       // the data of a Get has arrived (LNET_EVENT_REPLY)
	EventAck                         // the target has taken a Put (LNET_EVENT_ACK)
	EventSend                        // the Put's data, or the Get, has left (LNET_EVENT_SEND)
	EventUnlink                      // the descriptor is out of use (LNET_EVENT_UNLINK)
)

// String returns the name in Lustre's words.
func (t EventType) String() string {
	names := [...]string{"", "GET", "PUT", "REPLY", "ACK", "SEND", "UNLINK"}
	if t == 0 || int(t) >= len(names) {
		return fmt.Sprintf("event %d", uint8(t))
	}
	return names[t]
}

// Event reports an operation on a memory descriptor (lnet_event).
type Event struct {
	Type      EventType
	Peer      fabric.NodeID // the other end
	Portal    int
	MatchBits uint64
	HdrData   uint64 // of the Put
	Length    int    // bytes moved (mlength)
	Offset    int    // of the first one in the descriptor
	MD        *MD
	User      any // of the descriptor
	// Unlinked says that the descriptor is out of use; its memory is the caller's again.
	Unlinked bool
	// Err says why the operation failed (status). No further event of it follows.
	Err error
}

// Errors of events.
var (
	// ErrNoMatch says that nothing at the target matches the message, or has room for it (a NAK).
	ErrNoMatch = errors.New("lnet: no match entry at the target takes the message")
	// ErrRefused says that the target could not move the data (a NAK).
	ErrRefused = errors.New("lnet: the target could not move the data")
	// ErrTimeout says that the peer has not done its part within Config.Timeout.
	ErrTimeout = errors.New("lnet: the peer did not answer in time")
)

// queueEvent queues an event for Poll. The caller holds mu.
func (ni *NI) queueEvent(d *MD, e Event) {
	if d.desc.Handler != nil {
		e.MD, e.User = d, d.desc.User
		ni.events = append(ni.events, e)
	}
}

// runHandlers runs the handlers of the queued events.
func (ni *NI) runHandlers() int {
	ni.mu.Lock()
	events := ni.events
	ni.events = nil
	ni.sendAndUnlock()
	for _, e := range events {
		e.MD.desc.Handler(e)
	}
	return len(events)
}
