/* What a thread is in the middle of, and the signals that come in between.
 *
 * A signal handler may call whatever POSIX lists as async-signal-safe, on the very connection that the call which it
 * interrupts is at, and it may leave that call for good by siglongjmp. To the kernel this is nothing special: a handler runs
 * when a system call is over. So here:
 *
 *   critical section   what must be done as a whole: locks are held, a list is being changed. A signal that comes in it
 *                      is kept, and comes at its end:
 *
 *      send ── begin ── lock ── copy ── unlock ── end ──▶
 *                                ▲                 ▲ the signal is queued to the thread again, the mask is as before:
 *                                │                   now the kernel runs the program's handler
 *                          signal: is noted, and all others are blocked
 *
 *   cleanup            what a call has taken and is to give back, though a jump leaves it: done by the jump.
 *   level              how many handlers of signals the thread is in.
 *
 * Sections are short, and never entered by who sleeps. What a section cannot defer are faults (SIGSEGV and its like,
 * from the kernel), and handlers that the library does not know of (raw rt_sigaction): these find locks taken by
 * their own thread, and are refused (lock.h).
 */
#ifndef DS_THREAD_H
#define DS_THREAD_H

#include "segment/real.h"

#include <stdint.h>

enum { DS_CLEANUPS = 24 }; /* of a thread; what comes in addition is not cleaned up after a jump */

struct ds_thread {
	uint32_t tid;
	int critical; /* sections that it is in */
	int deferred; /* signals that wait for the end of the outermost */
	int level;    /* handlers that it is in */
	unsigned handled; /* handlers that have returned; wraps */
	int cleanups;
	struct ds_cleanup {
		void (*run)(void *arg);
		void *arg;
		int level;
	} cleanup[DS_CLEANUPS];
};

extern __thread struct ds_thread ds_self __attribute__((tls_model("initial-exec"))) DS_HIDDEN;

/* This thread's number, from the kernel at the first call. No lock. */
uint32_t ds_tid_ask(void) DS_HIDDEN;
static inline uint32_t ds_tid(void) { return __builtin_expect(ds_self.tid != 0, 1) ? ds_self.tid : ds_tid_ask(); }

/* In the child of a fork: it is another thread, and signals that wait are the parent's. */
void ds_tid_child(void) DS_HIDDEN;

/* Does thread tid exist no more? Asks the kernel. */
bool ds_tid_dead(uint32_t tid) DS_HIDDEN;

/* True if this process has one thread only; false, too, where the C library does not tell (musl). */
extern char __libc_single_threaded __attribute__((weak));
static inline bool ds_one_thread(void) { return &__libc_single_threaded && __libc_single_threaded; }

/* Gives the signals that came in a critical section to the kernel again. errno stays. */
void ds_deferred(void) DS_HIDDEN;

/* Begins and ends a critical section; they nest. */
static inline void ds_critical_begin(void)
{
	ds_self.critical++;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void ds_critical_end(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	int left = --ds_self.critical;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(*(volatile int *)&ds_self.deferred, 0) && left == 0)
		ds_deferred();
}

/* The same within one function, which is faster: leave takes what enter returned. */
static inline int ds_critical_enter(void)
{
	int before = ds_self.critical;

	ds_self.critical = before + 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return before;
}

static inline void ds_critical_leave(int before)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	ds_self.critical = before;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (__builtin_expect(*(volatile int *)&ds_self.deferred, 0) && before == 0)
		ds_deferred();
}

/* How many handlers have run in this thread: who has changed since it armed looks again instead of falling asleep,
 * since a handler may have heard the bell that it would wait for. Between that look and the kernel some instructions stay. */
static inline unsigned ds_handled(void) { return *(volatile unsigned *)&ds_self.handled; }

/* Is the code that a handler of this thread has interrupted in a critical section? No lock. */
bool ds_interrupted(void) DS_HIDDEN;

/* In a critical section: run(arg) is to be called if a jump leaves this call. Returns what ds_cleanup_pop takes;
 * -1: there was no place. */
static inline int ds_cleanup_push(void (*run)(void *), void *arg)
{
	struct ds_thread *t = &ds_self;
	int n = t->cleanups;

	if (__builtin_expect(n >= DS_CLEANUPS, 0))
		return -1;
	t->cleanup[n] = (struct ds_cleanup){run, arg, t->level};
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->cleanups = n + 1;
	return n;
}

/* In a critical section: the caller has given it back; what was pushed after it is over, too. */
static inline void ds_cleanup_pop(int slot)
{
	if (slot >= 0 && slot < ds_self.cleanups)
		ds_self.cleanups = slot;
}

/* Adds n to a word that no other thread changes now, by one instruction: a signal handler finds it done or not done.
 * Returns the sum. */
static inline uint32_t ds_add_here(uint32_t *p, uint32_t n)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
	uint32_t v = n;

	__asm__ volatile("xaddl %0, %1" : "+r"(v), "+m"(*p) : : "memory", "cc");
	return v + n;
#else
	return __atomic_add_fetch(p, n, __ATOMIC_ACQ_REL);
#endif
}

/* This thread is about to jump to a frame whose stack pointer is to; NULL: not known, but it leaves the innermost
 * handler. Calls that it leaves are cleaned up after. Outside of critical sections but for those that it leaves. */
void ds_jump(const char *to) DS_HIDDEN;

/* As sigaction(2), for the program: its handler comes by way of this library, which sigaction does not show. */
int ds_sigaction(int sig, const struct sigaction *act, struct sigaction *old) DS_HIDDEN;

/* The C library has set the handler of sig by a call of its own (signal and its like), which returned old: as
 * ds_sigaction afterwards. Returns what that call is to return. */
void (*ds_signal_was_set(int sig, void (*old)(int)))(int) DS_HIDDEN;

#endif
