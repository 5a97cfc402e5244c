/* One round of looking at an instance: shared by epready.c, which finds what is ready, and
 * eporder.c, which puts it in order. */
#ifndef DS_EPROUND_H
#define DS_EPROUND_H

#include "fd/epoll_int.h"

/* What a round knows. Times are those of ds_ticks. */
struct round {
	struct epi *e;
	struct member *list; /* what was found, the last found first */
	int found;	     /* its length */
	bool mixed;	     /* its keys may not fall from the first to the last */
	int foreign;	     /* events of the program's own, which the kernel reported: the first of ev */
	int strays;	     /* events that nobody here can use: of members just gone, or of another process */
	uint64_t begin;	     /* when the first look began */
	uint64_t order;	     /* what the kernel reports next came after that */
	uint64_t asked;	     /* when the kernel was asked last in this round; 0: it was not */
	uint64_t answered;   /* when it had answered */
	uint64_t cut;	     /* what came later is left to the next round, */
	uint64_t cut_bells;  /* or later than this, if the kernel has reported its doorbell */
	bool heard;	     /* the kernel has reported something, */
	bool others;	     /* not only doorbells, */
	bool news;	     /* the same, when it was asked last */
	bool loose;	     /* something was found that the kernel did not report */
	bool rung;	     /* a peer says that it rang another doorbell first, perhaps of a member that is armed */
	bool woken;	     /* the kernel reported the wakefd */
};

/* All of these with e's lock.
 *
 * When what m has ready came, which is its place in the order. */
uint64_t round_came(const struct round *r, struct member *m) DS_HIDDEN;

/* The latest of the list; 0: it is empty. */
uint64_t round_latest(const struct round *r) DS_HIDDEN;

/* Removes from the list what another thread has taken since it was found. */
void round_drop_empty(struct round *r) DS_HIDDEN;

/* Writes the list to ev, which holds max, in order and between the foreign events; empties the list
 * and returns the number of all events. asked: when the kernel was asked before this round. */
int round_tell(struct round *r, struct epoll_event *ev, int max, uint64_t asked) DS_HIDDEN;

#endif
