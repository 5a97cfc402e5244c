/* A lease on another node's memory, for programs in C: what package memory is for Go. ../SPEC.md
 * has the messages. */
#ifndef EXNMEM_H
#define EXNMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "window.h"

enum { EXNMEM_PAGE = 4096, EXNMEM_HUGE = 2 << 20 };

/* exnmem_config says what to borrow. */
struct exnmem_config {
	const char *socket; /* NULL: $EXN_MEMORY, or the node of this network namespace */
	int node;           /* the lender; -1: any that lends, the nearest first */
	uint64_t size;      /* a multiple of EXNMEM_PAGE, or of EXNMEM_HUGE */
	uint64_t min;       /* less that will do; 0: size */
	bool huge;          /* huge pages */
};

struct exnmem;

/* exnmem_present returns 0 if the node is there whose socket is named (as in exnmem_config), or -1
 * with errno. */
int exnmem_present(const char *socket);

/* exnmem_borrow borrows memory, which is zeros at first. It returns NULL, with errno and one line
 * in why, if it gets none. */
struct exnmem *exnmem_borrow(const struct exnmem_config *cfg, char *why, size_t why_size);

/* exnmem_watch starts a thread that gives the memory back when its lender wants it, and notices
 * when the lender is gone. Call it after fork, and before the memory is used: that of another host
 * is reached with its help. Returns 0, or -1 with errno. */
int exnmem_watch(struct exnmem *m);

uint64_t exnmem_size(const struct exnmem *m);
int exnmem_lender(const struct exnmem *m);

/* These may be called from many threads. They return 0, or -1 with errno: EINVAL (not within the
 * memory), ESTALE (taken back by the lender), EIO (the lender is gone). */
int exnmem_read(struct exnmem *m, void *to, size_t n, uint64_t at);
int exnmem_write(struct exnmem *m, const void *from, size_t n, uint64_t at);
int exnmem_zero(struct exnmem *m, uint64_t n, uint64_t at);

enum exnmem_kind { EXNMEM_READ, EXNMEM_WRITE, EXNMEM_ZERO };

/* exnmem_op is one of these three, that may have to wait for its lender. */
struct exnmem_op {
	struct exnmem *m;
	enum exnmem_kind kind;
	void *here;
	uint64_t n, at;
	struct window_op parts[3]; /* of another host: for zeros, whole pages, and what is before and after them */
	int next;
};

/* exnmem_begin prepares an operation. The memory at here is borrowed until its end. */
void exnmem_begin(struct exnmem_op *o, struct exnmem *m, enum exnmem_kind kind, void *here, uint64_t n, uint64_t at);

/* exnmem_wait goes on with an operation until its end, or until a time of CLOCK_MONOTONIC (NULL:
 * for ever). It returns as exnmem_read; ETIMEDOUT says that the lender has not answered: wait
 * again. Memory of this host does not wait. */
int exnmem_wait(struct exnmem_op *o, const struct timespec *until);

/* exnmem_left is how many bytes of an operation that is under way are to be moved yet. */
uint64_t exnmem_left(const struct exnmem_op *o);

/* exnmem_leave gives up a read for which exnmem_wait has said ETIMEDOUT. */
void exnmem_leave(struct exnmem_op *o);

/* exnmem_give_up ends the lease: what waits for it, and what comes later, fails with EIO. */
void exnmem_give_up(struct exnmem *m);

/* exnmem_next returns where the next byte at or after at begins that has been written (data), or
 * that has not: at most the size. */
uint64_t exnmem_next(struct exnmem *m, uint64_t at, bool data);

/* exnmem_return gives the memory back. Nobody else uses m then, or afterwards. */
void exnmem_return(struct exnmem *m);

#endif
