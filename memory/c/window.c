#define _GNU_SOURCE
#include "window.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->freed, NULL);
	pthread_cond_init(&w->answered, NULL);
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
	pthread_cond_broadcast(&w->answered);
	pthread_mutex_unlock(&w->lock);
}

/* take waits for a free slot. Returns it, or -1 if the lease has ended. */
static int take(struct window *w) {
	int slot = -1;
	pthread_mutex_lock(&w->lock);
	while (!w->free && !w->ended)
		pthread_cond_wait(&w->freed, &w->lock);
	if (w->ended) {
		errno = w->ended;
	} else {
		slot = __builtin_ctzll(w->free);
		w->free &= w->free - 1;
	}
	pthread_mutex_unlock(&w->lock);
	return slot;
}

static void give(struct window *w, int slot) {
	pthread_mutex_lock(&w->lock);
	w->free |= UINT64_C(1) << slot;
	pthread_cond_signal(&w->freed);
	pthread_mutex_unlock(&w->lock);
}

/* ask has the node do an operation, and waits for its end. A slot whose answer has not come is not
 * free, and the lease has ended then. */
static int ask(struct window *w, uint16_t op, int slot, uint64_t n, uint64_t at) {
	struct message m = {.op = op, .number = (uint32_t)slot, .a = at, .b = n};
	for (;;) {
		pthread_mutex_lock(&w->lock);
		w->status[slot] = -1;
		pthread_mutex_unlock(&w->lock);
		if (message_send(w->conn, &m) < 0) {
			errno = EIO;
			return -1;
		}
		pthread_mutex_lock(&w->lock);
		while (w->status[slot] < 0 && !w->ended)
			pthread_cond_wait(&w->answered, &w->lock);
		int status = w->status[slot], ended = w->ended;
		pthread_mutex_unlock(&w->lock);
		switch (status) {
		case STATUS_OK:
			return 0;
		case STATUS_BUSY:
			usleep(BUSY_PAUSE_USEC);
			continue;
		case STATUS_INVALID:
			errno = EINVAL;
			return -1;
		case STATUS_LOST:
		case STATUS_NO_LEASE:
		case STATUS_NO_NODE:
			errno = EIO;
			return -1;
		default:
			errno = ended ? ended : ESTALE;
			return -1;
		}
	}
}

static int outside(const struct window *w, uint64_t n, uint64_t at) {
	if (n <= w->size && at <= w->size - n)
		return 0;
	errno = EINVAL;
	return -1;
}

int window_move(struct window *w, char *here, size_t n, uint64_t at, bool write) {
	if (outside(w, n, at))
		return -1;
	int slot = n ? take(w) : 0;
	int r = slot < 0 ? -1 : 0;
	while (n > 0 && r == 0) {
		char *there = w->memory + (size_t)slot * WINDOW_SLOT;
		uint64_t some = PART_SIZE - at % PART_SIZE;
		if (some > WINDOW_SLOT)
			some = WINDOW_SLOT;
		if (some > n)
			some = n;
		if (write)
			memcpy(there, here, some);
		r = ask(w, write ? OP_PUT : OP_GET, slot, some, at);
		if (r == 0 && !write)
			memcpy(here, there, some);
		here += some;
		at += some;
		n -= some;
		if (n == 0 || r < 0) {
			int e = errno;
			give(w, slot);
			errno = e;
		}
	}
	return r;
}

int window_zero(struct window *w, uint64_t n, uint64_t at) {
	if (outside(w, n, at))
		return -1;
	int slot = take(w);
	if (slot < 0)
		return -1;
	int r = ask(w, OP_ZERO, slot, n, at);
	int e = errno;
	give(w, slot);
	errno = e;
	return r;
}
