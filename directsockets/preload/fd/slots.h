/* The sockets of ours in a set that a call of poll or select waits for. */
#ifndef DS_SLOTS_H
#define DS_SLOTS_H

#include "fd/uncounted.h"

/* One socket of the set that conn/ knows. */
struct slot {
	struct conn *c;
	unsigned at;	  /* its place in the program's array */
	unsigned extra;	  /* of its doorbell and eventfd in the kernel's; 0 none */
	int extras;
	bool in_place;	  /* its doorbell has the socket's own place there */
	unsigned kernel;  /* what the shadow decides */
	bool direct;	  /* both directions: the shadow has nothing to say as long as something is ready */
	bool waiting, armed, had;
	bool follows, far; /* ds_follow was called; it said that the leader is another process's */
	bool rung;	  /* the sleep that has ended */
	bool early;	  /* of a large set: it had no doorbell when the call began */
	bool quiet;	  /* of a large set: direct both ways, nothing has come, nothing has ended */
};

struct room;

/* All of a call. */
struct waiting {
	struct slot *slots;
	nfds_t n;
	struct room *map; /* if it is large */
	bool local; /* it uses small */
	bool large;
	unsigned handled; /* large: ds_handled when the call began */
	int cleanup; /* of ds_cleanup_push */
};

/* A set that the kernel is asked about is on the stack if it has no more than these. */
enum { SMALL_FDS = 64 };

/* In a set of more sockets of ours than this, what nothing has happened to is not asked about more
 * often than it must be, by us or by the kernel: most of them are idle. Only in a process of one
 * thread: no other can change them meanwhile. */
enum { LARGE = 64 };

/* Makes room for `ours` sockets of a set of n: *k for the kernel's set, which is `few` if that is
 * large enough. False: no memory. */
bool slots_begin(struct waiting *w, nfds_t n, nfds_t ours, struct pollfd *few, struct pollfd **k) DS_HIDDEN;
/* Gives back all that w has. */
void slots_end(struct waiting *w) DS_HIDDEN;

/* Puts the conn of fd, the i-th of the set, into w, if conn/ knows it. */
void slots_join(struct waiting *w, int fd, nfds_t i) DS_HIDDEN;

/* Looks at t's socket, whose entry is p: true if something is ready. slots_look: at all sockets;
 * slots_look_more: at those that were not ready. They return the number of entries that are. */
bool slots_look_at(const struct waiting *w, struct slot *t, struct pollfd *p) DS_HIDDEN;
int slots_look(struct waiting *w, struct pollfd *fds) DS_HIDDEN;
int slots_look_more(struct waiting *w, struct pollfd *fds) DS_HIDDEN;

/* Registers this thread as a sleeper on a socket, and arms it. slots_wake ends the sleep on all of
 * w. */
void slots_sleep(struct slot *t, const struct pollfd *fds) DS_HIDDEN;
void slots_wake(struct waiting *w) DS_HIDDEN;

#endif
