/* Critical sections of a thread, and the signals that arrive in them.
 *
 * A signal handler may call whatever POSIX lists as async-signal-safe, on the very connection whose
 * call it has interrupted, and it may leave that call for good by siglongjmp. The kernel has no
 * trouble with this: it runs handlers when a system call is over. So here:
 *
 *   critical section   what must be done as a whole: locks are held, a list is being changed. A
 *                      signal that arrives in it is deferred to its end:
 *
 *      send ── begin ── lock ── copy ── unlock ── end ──▶
 *                                ▲                 ▲ the signal is queued to the thread again, the mask is as before:
 *                                │                   now the kernel runs the program's handler
 *                          signal: is noted, and all others are blocked
 *
 *   cleanup            what a call has taken and must release even if a jump leaves it: the jump does.
 *   level              how many signal handlers the thread is in.
 *
 * Sections are short, and no thread sleeps in one. A section cannot defer faults (SIGSEGV and its
 * like, from the kernel), nor handlers unknown to the library (raw rt_sigaction): these may find a
 * lock held by their own thread, and do not get it (lock.h).
 */
#ifndef DS_THREAD_H
#define DS_THREAD_H

#include "segment/name.h"

#include <stdint.h>
#include <ucontext.h>

enum { DS_CLEANUPS = 12 }; /* of a thread; further ones are not run after a jump */

/* One for each thread. Static thread-local storage is scarce: a program with LD_AUDIT, or whose
 * other libraries have much, does not start if there is too much of it. */

struct ds_thread {
	uint32_t name; /* 0: it has none yet */
	int critical; /* depth of critical sections */
	int deferred; /* signals that wait for the end of the outermost */
	int level;    /* depth of signal handlers */
	unsigned handled; /* handlers that have returned; wraps */
	int cleanups;
	struct ds_cleanup {
		void *arg;
		int32_t run; /* a function, as far from ds_jump as this */
		int level;
#ifdef DS_FREE
		bool frame; /* arg lies on the stack: gone once the jump is done, and nobody tells before */
#endif
	} cleanup[DS_CLEANUPS];
};

extern DS_LOCAL struct ds_thread ds_selves DS_HIDDEN;
#define ds_self DS_HERE(ds_selves)

/* The name of this thread (name.h). The first call makes system calls. No lock. */
uint32_t ds_me_ask(void) DS_HIDDEN;
static inline uint32_t ds_me(void) { return __builtin_expect(ds_self.name != 0, 1) ? ds_self.name : ds_me_ask(); }

/* In the child of a fork: the names are new, and deferred signals are the parent's. */
void ds_me_child(void) DS_HIDDEN;

/* True if this process has only one thread; false also where the C library does not say (musl). */
static inline bool ds_one_thread(void) { return *ds_single_thread; }

/* Sends this thread again the signals that were deferred. Keeps errno. */
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

/* The same within one function, faster: leave takes what enter returned. */
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

/* How many handlers have run in this thread. A sleeper that sees it change after arming looks again
 * instead of sleeping, since the handler may have read the bell. A window of a few instructions
 * before the system call remains. */
static inline unsigned ds_handled(void) { return *(volatile unsigned *)&ds_self.handled; }

/* True if this thread is in a handler that interrupted a critical section. No lock. */
bool ds_interrupted(void) DS_HIDDEN;

/* This thread is about to jump to a frame whose stack pointer is to (NULL: unknown, but out of the
 * innermost handler): runs the cleanups of the calls that it leaves. Not in a critical section,
 * except one that the jump leaves. */
void ds_jump(const char *to) DS_HIDDEN;

/* In a critical section: has run(arg) called if a jump leaves this call. Returns the argument for
 * ds_cleanup_pop; -1: no room. */
static inline int ds_cleanup_push(void (*run)(void *), void *arg)
{
	struct ds_thread *t = &ds_self;
	int n = t->cleanups;

	if (__builtin_expect(n >= DS_CLEANUPS, 0))
		return -1;
	t->cleanup[n] = (struct ds_cleanup){.arg = arg, .run = (int32_t)((intptr_t)run - (intptr_t)ds_jump), .level = t->level};
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->cleanups = n + 1;
	return n;
}

/* The same for an argument on the stack. */
static inline int ds_cleanup_push_frame(void (*run)(void *), void *frame)
{
	int n = ds_cleanup_push(run, frame);

#ifdef DS_FREE
	if (n >= 0)
		ds_self.cleanup[n].frame = true;
#endif
	return n;
}

/* In a critical section: removes the cleanup at slot, and all pushed after it. */
static inline void ds_cleanup_pop(int slot)
{
	if (slot >= 0 && slot < ds_self.cleanups)
		ds_self.cleanups = slot;
}

/* How many calls of this thread would have run(arg) called by a jump out of them? */
static inline int ds_cleanups(void (*run)(void *), const void *arg)
{
	int n = 0;

	for (int i = 0; i < ds_self.cleanups; i++)
		n += ds_self.cleanup[i].arg == arg && ds_self.cleanup[i].run == (int32_t)((intptr_t)run - (intptr_t)ds_jump);
	return n;
}

/* Adds n to a word that no other thread changes now, in one instruction, so that a signal handler
 * sees it before or after. Returns the sum. */
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

/* True if the signal is a fault of the code that it interrupts, which cannot go on before it is
 * handled. */
bool ds_is_fault(const siginfo_t *info) DS_HIDDEN;

/* Where a handler finds the thread that it interrupts. */
struct ds_where {
	uintptr_t pc, sp;
};

/* Says where a handler finds a thread of Go that is in this library; false: where it is. NULL: the
 * program has no Go. */
extern bool (*ds_go_where)(struct ds_where *w, const ucontext_t *u, const siginfo_t *info) DS_HIDDEN;

/* Exchanges *w and where the thread of this context is. */
void ds_where_swap(ucontext_t *u, struct ds_where *w) DS_HIDDEN;

/* As sigaction(2), for the program. The library's own handler calls the program's, which this
 * hides. */
int ds_sigaction(int sig, const struct sigaction *act, struct sigaction *old) DS_HIDDEN;

/* After the C library has set the handler of sig itself (signal and its like), which returned old:
 * has the effect of ds_sigaction. Returns what that call must return. */
void (*ds_signal_was_set(int sig, void (*old)(int)))(int) DS_HIDDEN;

#endif
