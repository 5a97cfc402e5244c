/* Calls of the kernel by the number of a descriptor, which dup2 may be giving to another file: they
 * would reach that one, below a connection that is direct.
 *
 *	a call   counts itself at its socket ── is the number still the socket's? ── yes ──▶ the kernel ──▶ counts back
 *	dup2     writes to the table that the number changes ── is any counted? ── no ──▶ the kernel
 *
 * So either the call finds that the number changes, or dup2 waits for it: a second at most, as the
 * kernel may have it sleep. What may sleep for ever as a rule, a receive, is not counted.
 *
 * close does the same for brief calls, those that do not sleep. So whatever a call of the program
 * does after its first call of the kernel is brief: only that one may come too late, as it might
 * without this library. */
#ifndef DS_NUMBERS_H
#define DS_NUMBERS_H

#include "segment/segment.h"

#include <stdint.h>

/* Of a socket: the calls under way, those that began while changes was even, and odd. One that
 * finds that its number is another file's takes its count back: it may come late, when this is
 * another socket. */
struct ds_numbered {
	int calls[2];
	unsigned changes; /* times that dup2 has taken one of its numbers, with the lock of the numbers */
	int brief; /* those of them that do not sleep are counted here, as are receives */
};

/* A number of a socket: it is that as long as the table has this word at that place. */
struct ds_number {
	const uintptr_t *at;
	uintptr_t word;
};

struct ds_by_number {
	int *count; /* NULL: none is under way, or none is counted, as the process has one thread */
	int slot;
};

/* A jump leaves a call that is counted: int *. */
void ds_by_number_left(void *count) DS_HIDDEN;

/* One begins that is counted there, in a critical section. From then on the table says which number
 * the caller may use. */
static inline void ds_by_number_count(struct ds_by_number *k, int *count)
{
	/* Whoever changes a number changes its word first, and then looks at the count. */
	__atomic_fetch_add(count, 1, __ATOMIC_SEQ_CST);
	*k = (struct ds_by_number){count, ds_cleanup_push(ds_by_number_left, count)};
}
/* The same of one that may sleep. */
static inline void ds_by_number_count_calls(struct ds_by_number *k, struct ds_numbered *n)
{
	unsigned changes = __atomic_load_n(&n->changes, __ATOMIC_RELAXED), now;

	for (;; changes = now) {
		int *count = &n->calls[changes & 1];
		__atomic_fetch_add(count, 1, __ATOMIC_SEQ_CST);
		now = __atomic_load_n(&n->changes, __ATOMIC_SEQ_CST);
		if (__builtin_expect(((now ^ changes) & 1) == 0, 1)) {
			*k = (struct ds_by_number){count, ds_cleanup_push(ds_by_number_left, count)};
			return;
		}
		__atomic_fetch_sub(count, 1, __ATOMIC_RELEASE); /* the next change would not wait for that */
	}
}
/* One begins on the socket of n. */
static inline void ds_by_number_begin(struct ds_by_number *k, struct ds_numbered *n, bool brief)
{
	if (ds_one_thread())
		return;
	int before = ds_critical_enter();
	if (brief)
		ds_by_number_count(k, &n->brief);
	else
		ds_by_number_count_calls(k, n);
	ds_critical_leave(before);
}
static inline void ds_by_number_end(struct ds_by_number *k)
{
	if (!k->count)
		return;
	int before = ds_critical_enter();
	ds_cleanup_pop(k->slot);
	__atomic_fetch_sub(k->count, 1, __ATOMIC_RELEASE);
	k->count = NULL;
	ds_critical_leave(before);
}
#define DS_BY_NUMBER(name) __attribute__((cleanup(ds_by_number_end))) struct ds_by_number name = {NULL, -1}

/* One begins by this number of the socket of n. False: it is another file's, and nothing has
 * begun. */
static inline bool ds_by_number_same(struct ds_by_number *k, struct ds_numbered *n, struct ds_number number)
{
	if (ds_one_thread())
		return true;
	int before = ds_critical_enter();
	ds_by_number_count_calls(k, n);
	bool same = __atomic_load_n(number.at, __ATOMIC_SEQ_CST) == number.word;
	if (__builtin_expect(!same, 0))
		ds_by_number_end(k);
	ds_critical_leave(before);
	return same;
}

/* The table says by now that a number of this socket is another file's. Waits until the calls that
 * had begun have ended, a second at most. It does not wait for calls of this thread. With the lock
 * of the numbers. */
void ds_by_number_await(struct ds_numbered *n) DS_HIDDEN;
/* The same of brief calls, with no lock: waits for a moment at which none is under way. */
void ds_by_number_await_brief(const struct ds_numbered *n) DS_HIDDEN;
/* In the child of a fork only those of this thread are under way. */
void ds_by_number_child(struct ds_numbered *n) DS_HIDDEN;

#endif
