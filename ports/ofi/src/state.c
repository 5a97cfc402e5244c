// state.c: the steps of a connection's life. Nothing else writes a state.
#include "state.h"

const char *const exfi_state_names[STATES] = {
	"idle", "arriving", "offered", "dialing", "asked", "accepting", "early", "connected", "ending", "draining", "down",
};

const char *const exfi_input_names[INPUTS] = {
	"arrives", "take", "dial", "reached", "request", "accept", "withdrawn", "accepted", "ready", "first",
	"failed", "parted", "closed", "died", "empty", "broken", "shutdown", "close", "fork",
};

const char *const exfi_act_names[ACTS] = {
	"none", "tell", "drain", "fail", "free", "end", "part", "leave", "leave-tell",
};

#define TO(state, act) {true, state, act}

// Every endpoint may be closed, shut down, and forked, in any state: the last three of each.
const struct step exfi_steps[STATES][INPUTS] = {
	[IDLE] = {
		[ON_ARRIVES] = TO(ARRIVING, ACT_NONE), // of a request
		[ON_TAKE] = TO(OFFERED, ACT_NONE),
		[ON_DIAL] = TO(DIALING, ACT_NONE),
		[ON_SHUTDOWN] = TO(DOWN, ACT_FREE),
		[ON_CLOSE] = TO(DOWN, ACT_FREE),
		[ON_FORK] = TO(DOWN, ACT_NONE),
	},
	// A request that fails is freed by who has noticed.
	[ARRIVING] = {
		[ON_REQUEST] = TO(OFFERED, ACT_NONE),
	},
	[OFFERED] = {
		[ON_TAKE] = TO(DOWN, ACT_NONE), // of the request: the endpoint has the state now
		[ON_ACCEPT] = TO(ACCEPTING, ACT_NONE),
		[ON_WITHDRAWN] = TO(DOWN, ACT_FREE),
		[ON_FAILED] = TO(DOWN, ACT_FREE), // fi_accept returns the error
		[ON_SHUTDOWN] = TO(DOWN, ACT_FREE),
		[ON_CLOSE] = TO(DOWN, ACT_FREE),
		[ON_FORK] = TO(DOWN, ACT_NONE),
	},
	[DIALING] = {
		[ON_REACHED] = TO(ASKED, ACT_NONE),
		[ON_FAILED] = TO(DOWN, ACT_FAIL),
		[ON_DIED] = TO(DOWN, ACT_FAIL),
		[ON_SHUTDOWN] = TO(DOWN, ACT_FREE),
		[ON_CLOSE] = TO(DOWN, ACT_FREE),
		[ON_FORK] = TO(DOWN, ACT_NONE),
	},
	[ASKED] = {
		[ON_ACCEPTED] = TO(CONNECTED, ACT_TELL),
		[ON_FAILED] = TO(DOWN, ACT_FAIL),
		[ON_DIED] = TO(DOWN, ACT_FAIL),
		[ON_SHUTDOWN] = TO(DOWN, ACT_FREE),
		[ON_CLOSE] = TO(DOWN, ACT_FREE),
		[ON_FORK] = TO(DOWN, ACT_NONE),
	},
	[ACCEPTING] = {
		[ON_READY] = TO(CONNECTED, ACT_TELL),
		[ON_FIRST] = TO(EARLY, ACT_TELL),
		[ON_FAILED] = TO(DOWN, ACT_FAIL),
		[ON_DIED] = TO(DOWN, ACT_FAIL),
		[ON_SHUTDOWN] = TO(DOWN, ACT_PART),
		[ON_CLOSE] = TO(DOWN, ACT_PART),
		[ON_FORK] = TO(DOWN, ACT_NONE),
	},
	[EARLY] = {
		[ON_READY] = TO(CONNECTED, ACT_NONE),
		[ON_FAILED] = TO(DOWN, ACT_LEAVE_TELL),
		[ON_PARTED] = TO(ENDING, ACT_DRAIN),
		[ON_CLOSED] = TO(DRAINING, ACT_DRAIN),
		[ON_DIED] = TO(DRAINING, ACT_DRAIN),
		[ON_BROKEN] = TO(DOWN, ACT_LEAVE_TELL),
		[ON_SHUTDOWN] = TO(DOWN, ACT_LEAVE_TELL),
		[ON_CLOSE] = TO(DOWN, ACT_LEAVE),
		[ON_FORK] = TO(DOWN, ACT_NONE),
	},
	[CONNECTED] = {
		[ON_PARTED] = TO(ENDING, ACT_DRAIN),
		[ON_CLOSED] = TO(DRAINING, ACT_DRAIN),
		[ON_DIED] = TO(DRAINING, ACT_DRAIN),
		[ON_BROKEN] = TO(DOWN, ACT_LEAVE_TELL),
		[ON_SHUTDOWN] = TO(DOWN, ACT_LEAVE_TELL),
		[ON_CLOSE] = TO(DOWN, ACT_LEAVE),
		[ON_FORK] = TO(DOWN, ACT_NONE),
	},
	[ENDING] = {
		[ON_CLOSED] = TO(DRAINING, ACT_DRAIN),
		[ON_DIED] = TO(DRAINING, ACT_DRAIN),
		[ON_BROKEN] = TO(DOWN, ACT_END),
		[ON_SHUTDOWN] = TO(DOWN, ACT_END),
		[ON_CLOSE] = TO(DOWN, ACT_FREE),
		[ON_FORK] = TO(DOWN, ACT_NONE),
	},
	[DRAINING] = {
		[ON_EMPTY] = TO(DOWN, ACT_END),
		[ON_BROKEN] = TO(DOWN, ACT_END),
		[ON_SHUTDOWN] = TO(DOWN, ACT_END),
		[ON_CLOSE] = TO(DOWN, ACT_FREE),
		[ON_FORK] = TO(DOWN, ACT_NONE),
	},
};

enum act state_step(enum state *at, enum input what)
{
	const struct step *s = &exfi_steps[*at][what];
	if (!s->there)
		return ACTS;
	*at = s->to;
	return s->act;
}

const char *const exfi_stage_names[TX_STAGES] = {"queued", "placing", "refused", "telling", "begun", "placed"};

const char *const exfi_tx_event_names[TX_EVENTS] = {"grant", "refuse", "copied", "tells", "sent"};

// TX_QUEUED, to which nothing leads, means that there is no step.
static const enum stage tx_steps[TX_STAGES][TX_EVENTS] = {
	[TX_QUEUED] = {[TX_GRANT] = TX_PLACING, [TX_SENT] = TX_BEGUN},
	[TX_PLACING] = {[TX_REFUSE] = TX_REFUSED, [TX_COPIED] = TX_PLACED, [TX_TELLS] = TX_TELLING},
	[TX_REFUSED] = {[TX_SENT] = TX_BEGUN},
	[TX_TELLING] = {[TX_SENT] = TX_BEGUN},
};

bool tx_step(enum stage *at, enum tx_event what)
{
	enum stage to = tx_steps[*at][what];
	if (to == TX_QUEUED)
		return false;
	*at = to;
	return true;
}
