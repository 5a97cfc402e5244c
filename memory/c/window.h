/* The window to a lease on another host: slots that the node fills and empties. */
#ifndef EXNMEM_WINDOW_H
#define EXNMEM_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct window;

/* window_open maps the window, and borrows fd. conn is the connection to the node. NULL: errno. */
struct window *window_open(int conn, int fd, uint64_t size);

/* These may be called from many threads. They return 0, or -1 with errno, as exnmem_read. They wait
 * for answers, which another thread reads and gives to window_answer. */
int window_move(struct window *w, char *here, size_t n, uint64_t at, bool write);
int window_zero(struct window *w, uint64_t n, uint64_t at);

/* window_answer ends the operation of a slot. */
void window_answer(struct window *w, uint32_t slot, uint16_t status);

/* window_end has all operations fail with the error from now on, unless it was called before. */
void window_end(struct window *w, int error);

/* window_close frees the window. Nobody uses it any more. */
void window_close(struct window *w);

#endif
