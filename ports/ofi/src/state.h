// state.h: the life of a connection, told by one enum. state.c has the table of what each event
// does in each state, and nothing else writes a state. ports/SPEC.md, section 8, has the same
// table.
//
//	client:  IDLE ─ DIALING ─ ASKED ───────────────────┐
//	                                                   ├─ CONNECTED ─┬─ ENDING ─┬─ DRAINING ─ DOWN
//	server:  ARRIVING ─ OFFERED ─ ACCEPTING ─┬─ EARLY ─┤             └──────────┘
//	                                         └─────────┘
#ifndef EXFI_STATE_H
#define EXFI_STATE_H

#include <stdbool.h>

enum state {
	// IDLE: an endpoint without a connection. fi_connect begins one.
	IDLE,
	// ARRIVING: TCP has connected, and the request has not been read. There is no endpoint yet:
	// the request itself has this state and the next one, until an endpoint takes it.
	ARRIVING,
	// OFFERED: the program was told of the request. fi_accept and fi_reject answer it.
	OFFERED,
	// DIALING: TCP connects.
	DIALING,
	// ASKED: the request was sent.
	ASKED,
	// ACCEPTING: the request was accepted, and READY has not come. Nothing may be sent.
	ACCEPTING,
	// EARLY: messages have overtaken READY. It is as CONNECTED, but READY is still to be read.
	EARLY,
	// CONNECTED: messages go both ways. Of TCP only the end may come.
	CONNECTED,
	// ENDING: TCP has ended, or says that the peer has closed, and some of what it had sent is
	// still on its way. Nothing is sent.
	ENDING,
	// DRAINING: the peer has closed, or died, and all that it had sent is here. That is still
	// received.
	DRAINING,
	// DOWN: the end. All that was posted has ended, and every resource was freed but the
	// endpoint itself.
	DOWN,
	STATES,
};

enum input {
	ON_ARRIVES,   // the passive endpoint has accepted a connection of TCP
	ON_TAKE,      // an endpoint is made of a request
	ON_DIAL,      // fi_connect
	ON_REACHED,   // TCP has connected, and REQUEST was sent
	ON_REQUEST,   // REQUEST has come
	ON_ACCEPT,    // fi_accept: the ports are connected, and ACCEPT was sent
	ON_WITHDRAWN, // fi_reject
	ON_ACCEPTED,  // ACCEPT has come, the ports are connected, and READY was sent
	ON_READY,     // READY has come
	ON_FIRST,     // a message has come by the mailbox
	ON_FAILED,    // it cannot be connected: refused, or nonsense came
	ON_PARTED,    // the peer's TCP has ended, or says how much the peer has sent
	ON_CLOSED,    // the peer has closed, and all that it had sent has come
	ON_DIED,      // the peer's process, its node, or the own node has ended: nothing more comes
	ON_EMPTY,     // all that the peer sent was received
	ON_BROKEN,    // it cannot go on: a breach of the protocol, no memory, bytes of a message that cannot be got
	ON_SHUTDOWN,  // fi_shutdown
	ON_CLOSE,     // fi_close
	ON_FORK,      // this process is a child, and the connection its parent's
	INPUTS,
};

// What a step does beside the change of the state.
enum act {
	ACT_NONE,
	ACT_TELL,       // reports FI_CONNECTED
	ACT_DRAIN,      // ends what was to be sent, and receives what has come
	ACT_FAIL,       // reports the error, and frees
	ACT_FREE,       // frees; nothing is reported
	ACT_END,        // frees, and reports FI_SHUTDOWN
	ACT_PART,       // tells the peer by TCP that nothing was sent, and frees
	ACT_LEAVE,      // says CLOSE to the peer, and frees
	ACT_LEAVE_TELL, // says CLOSE to the peer, frees, and reports FI_SHUTDOWN
	ACTS,
};

struct step {
	bool there; // there is such a step; false in what the table leaves out
	enum state to;
	enum act act;
};

extern const struct step exfi_steps[STATES][INPUTS];
extern const char *const exfi_state_names[STATES], *const exfi_input_names[INPUTS], *const exfi_act_names[ACTS];

// Where an operation that is to be sent is. tx_step writes it.
enum stage {
	TX_QUEUED,  // nothing of it was sent, and nothing copied
	TX_PLACING, // this process copies its bytes itself, by a grant
	TX_REFUSED, // it could not copy all of them: it goes by messages, from its first byte on
	TX_TELLING, // it has copied all, and the target is to hear of it
	TX_BEGUN,   // its first message was sent, or the one by which the target hears of it
	TX_PLACED,  // the end: it has copied all, and nobody hears of it
	TX_STAGES,
};

enum tx_event {
	TX_GRANT,  // there is a grant, and nothing before it is under way
	TX_REFUSE, // the grant has ended, or the memory is not there
	TX_COPIED, // all bytes were copied
	TX_TELLS,  // the same, and the target is to hear of it
	TX_SENT,   // its first message was sent
	TX_EVENTS,
};

extern const char *const exfi_stage_names[TX_STAGES], *const exfi_tx_event_names[TX_EVENTS];

// tx_step makes the step of an event. It returns false if there is none: then nothing has changed.
bool tx_step(enum stage *at, enum tx_event what);

// state_step makes the step of an event. It returns what to do, or ACTS if there is none: then
// nothing has changed.
enum act state_step(enum state *at, enum input what);

// sends returns whether operations may be sent, hears whether messages may come, and receives
// whether some are still received.
static inline bool sends(enum state s)
{
	return s == EARLY || s == CONNECTED;
}

static inline bool hears(enum state s)
{
	return sends(s) || s == ENDING;
}

static inline bool receives(enum state s)
{
	return hears(s) || s == DRAINING;
}

#endif
