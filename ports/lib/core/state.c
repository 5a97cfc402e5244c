// state.c: the steps of a port, and of what it has of a peer.
#include "state.h"

const char *const exn_port_state_names[EXN_PORT_STATES] = {"idle", "asking", "dead"};
const char *const exn_port_event_names[EXN_PORT_EVENTS] = {"ask", "answer", "death"};
const char *const exn_peer_state_names[EXN_PEER_STATES] = {"there", "ended", "forgotten"};
const char *const exn_peer_event_names[EXN_PEER_EVENTS] = {"end", "forget"};

// A state that follows, and 1: 0 is no step.
static const unsigned char port_steps[EXN_PORT_STATES][EXN_PORT_EVENTS] = {
	[EXN_IDLE] = {[EXN_ON_ASK] = EXN_ASKING + 1, [EXN_ON_DEATH] = EXN_DEAD + 1},
	[EXN_ASKING] = {[EXN_ON_ANSWER] = EXN_IDLE + 1, [EXN_ON_DEATH] = EXN_DEAD + 1},
};

static const unsigned char peer_steps[EXN_PEER_STATES][EXN_PEER_EVENTS] = {
	[EXN_THERE] = {[EXN_ON_END] = EXN_ENDED + 1},
	[EXN_ENDED] = {[EXN_ON_FORGET] = EXN_FORGOTTEN + 1},
};

bool exn_port_step(enum exn_port_state *at, enum exn_port_event what)
{
	unsigned to = port_steps[*at][what];
	if (to != 0)
		*at = (enum exn_port_state)(to - 1);
	return to != 0;
}

bool exn_peer_step(enum exn_peer_state *at, enum exn_peer_event what)
{
	unsigned to = peer_steps[*at][what];
	if (to != 0)
		*at = (enum exn_peer_state)(to - 1);
	return to != 0;
}
