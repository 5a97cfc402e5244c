#define _GNU_SOURCE
#include "window.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "message.h"

enum { BUSY_PAUSE_USEC = 1000 }; /* before an operation that the node could not take is repeated */

struct window {
	int conn;
	uint64_t size; /* of the lease */
	char *memory;

	pthread_mutex_t lock;
	pthread_cond_t freed, answered;
	uint64_t free; /* slots, a bit each */
	uint64_t left; /* those whose answer nobody waits for: it frees them */
	int status[WINDOW_SLOTS]; /* of the answer; -1: none yet */
	int ended; /* errno; 0: the lease has not ended */
};

_Static_assert(WINDOW_SLOTS == 64, "a bit each");

struct window *window_open(int conn, int fd, uint64_t size) {
	struct window *w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->memory = mmap(NULL, (size_t)WINDOW_SLOTS * WINDOW_SLOT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (w->memory == MAP_FAILED) {
		int e = errno;
		free(w);
		errno = e;
		return NULL;
	}
	w->conn = conn;
	w->size = size;
	w->free = ~UINT64_C(0);
	pthread_condattr_t clock;
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->freed, &clock);
	pthread_cond_init(&w->answered, &clock);
	pthread_condattr_destroy(&clock);
	return w;
}

void window_close(struct window *w) {
	munmap(w->memory, (size_t)WINDOW_SLOTS * WINDOW_SLOT);
	pthread_cond_destroy(&w->answered);
	pthread_cond_destroy(&w->freed);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

void window_end(struct window *w, int error) {
	pthread_mutex_lock(&w->lock);
	if (!w->ended)
		w->ended = error;
	pthread_cond_broadcast(&w->freed);
	pthread_cond_broadcast(&w->answered);
	pthread_mutex_unlock(&w->lock);
}

void window_answer(struct window *w, uint32_t slot, uint16_t status) {
	if (slot >= WINDOW_SLOTS)
		return;
	pthread_mutex_lock(&w->lock);
	w->status[slot] = status;
	if (w->left >> slot & 1) {
		w->left &= ~(UINT64_C(1) << slot);
		w->free |= UINT64_C(1) << slot;
		pthread_cond_signal(&w->freed);
	}
	pthread_cond_broadcast(&w->answered);
	pthread_mutex_unlock(&w->lock);
}

/* wait_for waits for a condition, until a time (NULL: for ever). Returns false when that is over.
 * */
static bool wait_for(struct window *w, pthread_cond_t *what, const struct timespec *until) {
	if (!until)
		return pthread_cond_wait(what, &w->lock) == 0;
	return pthread_cond_timedwait(what, &w->lock, until) == 0;
}

/* take waits for a free slot. Returns it, or -1 with errno. */
static int take(struct window *w, const struct timespec *until) {
	int slot = -1;
	pthread_mutex_lock(&w->lock);
	while (!w->free && !w->ended && wait_for(w, &w->freed, until))
		;
	if (w->ended) {
		errno = w->ended;
	} else if (w->free) {
		slot = __builtin_ctzll(w->free);
		w->free &= w->free - 1;
	} else {
		errno = ETIMEDOUT;
	}
	pthread_mutex_unlock(&w->lock);
	return slot;
}

static void give(struct window *w, int slot) {
	int e = errno;
	pthread_mutex_lock(&w->lock);
	w->free |= UINT64_C(1) << slot;
	pthread_cond_signal(&w->freed);
	pthread_mutex_unlock(&w->lock);
	errno = e;
}

/* ask has the node do the next piece of an operation. */
static int ask(struct window *w, struct window_op *o) {
	struct message m = {.op = o->op, .number = (uint32_t)o->slot, .a = o->at, .b = o->asked};
	pthread_mutex_lock(&w->lock);
	w->status[o->slot] = -1;
	pthread_mutex_unlock(&w->lock);
	if (message_send(w->conn, &m))
		return 0;
	errno = EIO;
	return -1;
}

/* answer waits for the answer of a slot. Returns its status, or -1 with errno. */
static int answer(struct window *w, int slot, const struct timespec *until) {
	pthread_mutex_lock(&w->lock);
	while (w->status[slot] < 0 && !w->ended && wait_for(w, &w->answered, until))
		;
	int status = w->status[slot];
	errno = w->ended ? w->ended : ETIMEDOUT;
	pthread_mutex_unlock(&w->lock);
	return status;
}

static int error_of(int status) {
	switch (status) {
	case STATUS_INVALID:
		return EINVAL;
	case STATUS_LOST:
	case STATUS_NO_LEASE:
	case STATUS_NO_NODE:
		return EIO;
	}
	return ESTALE;
}

/* begin_piece has the node begin the next piece: of moves as much as a slot and a part of the
 * memory have. */
static int begin_piece(struct window *w, struct window_op *o) {
	uint64_t most = PART_SIZE - o->at % PART_SIZE;
	if (most > WINDOW_SLOT)
		most = WINDOW_SLOT;
	o->asked = o->op != OP_ZERO && o->n > most ? most : o->n;
	if (o->op == OP_PUT)
		memcpy(w->memory + (size_t)o->slot * WINDOW_SLOT, o->here, o->asked);
	return ask(w, o);
}

/* end_piece takes what has come. */
static void end_piece(struct window *w, struct window_op *o) {
	if (o->op == OP_GET)
		memcpy(o->here, w->memory + (size_t)o->slot * WINDOW_SLOT, o->asked);
	if (o->op != OP_ZERO)
		o->here += o->asked;
	o->at += o->asked;
	o->n -= o->asked;
	o->asked = 0;
}

void window_begin(struct window_op *o, uint16_t op, char *here, uint64_t n, uint64_t at) {
	*o = (struct window_op){.op = op, .here = here, .n = n, .at = at, .slot = -1};
}

int window_wait(struct window *w, struct window_op *o, const struct timespec *until) {
	if (o->n > w->size || o->at > w->size - o->n) {
		errno = EINVAL;
		return -1;
	}
	if (o->n > 0 && o->slot < 0 && (o->slot = take(w, until)) < 0)
		return -1;
	while (o->n > 0) {
		if (o->asked == 0 && begin_piece(w, o) < 0)
			return -1;
		int status = answer(w, o->slot, until);
		if (status < 0)
			return -1; /* a slot whose answer has not come is not free */
		if (status == STATUS_BUSY) {
			usleep(BUSY_PAUSE_USEC);
			if (ask(w, o) < 0)
				return -1;
			continue;
		}
		if (status != STATUS_OK) {
			give(w, o->slot);
			errno = error_of(status);
			return -1;
		}
		end_piece(w, o);
	}
	if (o->slot >= 0)
		give(w, o->slot);
	return 0;
}

void window_leave(struct window *w, struct window_op *o) {
	if (o->slot < 0)
		return;
	pthread_mutex_lock(&w->lock);
	if (o->asked > 0 && w->status[o->slot] < 0)
		w->left |= UINT64_C(1) << o->slot;
	else
		w->free |= UINT64_C(1) << o->slot;
	pthread_cond_signal(&w->freed);
	pthread_mutex_unlock(&w->lock);
}
