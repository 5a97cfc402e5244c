// state.h: the states of a port, and of what it has of a peer. state.c has the steps, and nothing
// else writes a state. ../../SPEC.md, 9.2, has the same tables.
#ifndef EXN_STATE_H
#define EXN_STATE_H

#include <stdbool.h>

// A port:
//
//	EXN_IDLE    reads what the node sends as it comes
//	EXN_ASKING  waits for an answer, which only exn_port_ask reads. A callback for a peer's end may
//	            want messages meanwhile, but must not take the answer
//	EXN_DEAD    the end: the node has ended
enum exn_port_state { EXN_IDLE, EXN_ASKING, EXN_DEAD, EXN_PORT_STATES };

enum exn_port_event { EXN_ON_ASK, EXN_ON_ANSWER, EXN_ON_DEATH, EXN_PORT_EVENTS };

// A peer, as a grant or a flow of it knows it:
//
//	EXN_THERE      it has not ended
//	EXN_ENDED      it has, and what it had sent is still taken
//	EXN_FORGOTTEN  a grant that the program has handles of: nobody finds it, for there may be another
//	               peer with its number. It is freed when the last handle is
enum exn_peer_state { EXN_THERE, EXN_ENDED, EXN_FORGOTTEN, EXN_PEER_STATES };

enum exn_peer_event { EXN_ON_END, EXN_ON_FORGET, EXN_PEER_EVENTS };

extern const char *const exn_port_state_names[EXN_PORT_STATES], *const exn_port_event_names[EXN_PORT_EVENTS];
extern const char *const exn_peer_state_names[EXN_PEER_STATES], *const exn_peer_event_names[EXN_PEER_EVENTS];

// exn_port_step and exn_peer_step do what an event does. They return false if it changes nothing.
bool exn_port_step(enum exn_port_state *at, enum exn_port_event what);
bool exn_peer_step(enum exn_peer_state *at, enum exn_peer_event what);

#endif
