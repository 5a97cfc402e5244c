// A broker that is just enough for tests (SPEC 6): one process, one namespace.
#ifndef SMALL_BROKER_H
#define SMALL_BROKER_H

#include <stdint.h>
#include <sys/types.h>

// Starts one in a child process at path, and sets EXNET_BROKER. Stops it.
pid_t broker_start(const char *path);
void broker_stop(pid_t pid, const char *path);

/* Waits until it has done what it does for the messages that it has answered: after a GRANT it
 * closes the doorbell. */
void broker_await(void);

/* Sets how many listeners of port its page has: as it hears of other brokers', and forgets them. */
void broker_listeners(uint16_t port, uint16_t n);

/* So many of the next offers are refused, for this reason of SPEC 6: 2, not taken in time, if it is
 * not set. Shared with the broker. */
extern int *broker_refuses, *broker_reason;
/* If not 0, it hangs up at HELLO as one of another version; or with REFUSED, as one that has no
 * room, before it has read HELLO or before that is sent; or it hangs up then and says nothing.
 * Shared with the broker. */
extern int *broker_hangs_up;
enum { BROKER_OF_NO_VERSION = 1, BROKER_FULL, BROKER_FULL_AT_ONCE, BROKER_ENDS_AT_ONCE };
/* The newest version of the messages that it speaks; 0: DS_NEWEST. It hangs up at a message of
 * another version than agreed. Shared with the broker. */
extern int *broker_newest;
/* What it does wrong with answers: each comes twice; or after the next one, or
 * 20 ms later; or, instead of the next
 * answer to a CLAIM, it hangs up. Shared with the broker. */
enum { BROKER_FINE, BROKER_TWICE, BROKER_LATE, BROKER_DIES };
extern int *broker_fault;

#endif
