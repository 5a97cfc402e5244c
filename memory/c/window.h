/* The window to a lease on another host: slots that the node fills and empties. */
#ifndef EXNMEM_WINDOW_H
#define EXNMEM_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct window;

/* window_open maps the window, and borrows fd. conn is the connection to the node. NULL: errno. */
struct window *window_open(int conn, int fd, uint64_t size);

/* window_op is an operation that is under way. */
struct window_op {
	uint16_t op; /* OP_GET, OP_PUT, or OP_ZERO of whole pages */
	int slot;    /* -1: none yet */
	char *here;
	uint64_t n, at; /* what is left of it */
	uint64_t asked; /* bytes of the piece that the node does; 0: none */
};

/* window_begin prepares an operation. The memory at here is borrowed until its end. */
void window_begin(struct window_op *o, uint16_t op, char *here, uint64_t n, uint64_t at);

/* window_wait goes on with an operation until its end, or until a time of CLOCK_MONOTONIC (NULL:
 * for ever). It returns 0, or -1 with errno: ETIMEDOUT says that it is under way, and to be waited
 * for again, or left; others are those of exnmem_read. The answers it waits for another thread
 * reads, and gives to window_answer. It may be called by many threads, for an operation by one. */
int window_wait(struct window *w, struct window_op *o, const struct timespec *until);

/* window_leave gives up a GET that is under way. */
void window_leave(struct window *w, struct window_op *o);

/* window_answer ends the operation of a slot. */
void window_answer(struct window *w, uint32_t slot, uint16_t status);

/* window_end has all operations fail with the error from now on, unless it was called before. */
void window_end(struct window *w, int error);

/* window_close frees the window. Nobody uses it any more. */
void window_close(struct window *w);

#endif
