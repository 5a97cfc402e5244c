#include "segment/thread.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum {
	LEVELS = 4,  /* nested handlers whose details are kept; deeper ones are only counted */
	KEPT = 4,    /* signals that wait; the first blocks all others, unless a sanitizer is in between */
	SIGNALS = 65,
};

DS_LOCAL struct ds_thread ds_selves;

/* The handlers that the thread is in, from the outermost. */
static DS_LOCAL struct level {
	const char *frame;	/* of the library's handler */
	const char *low, *high; /* the alternate stack */
	int critical;		/* of the code that it interrupted */
} thread_levels[LEVELS];
#define levels DS_HERE(thread_levels)

/* What the kernel says of a signal that waits: the rest of a siginfo_t is zero. */
static DS_LOCAL struct said {
	char head[48];
} thread_kept[KEPT];
#define kept DS_HERE(thread_kept)
static DS_LOCAL uint64_t masks_before; /* the first of them */
#define mask_before DS_HERE(masks_before)

/* ---- threads ----------------------------------------------------------------------- */

uint32_t ds_me_ask(void)
{
	ds_critical_begin(); /* else a handler might get a name, too */
	if (!ds_self.name)
		ds_self.name = ds_name_thread();
	ds_critical_end();
	return ds_self.name;
}

/* ---- signals ----------------------------------------------------------------------- */

/* The program's handlers: the address, and two bits that no address of a program has. */
#define INFO (1ull << 63)  /* SA_SIGINFO */
#define RESET (1ull << 62) /* SA_RESETHAND */

static uint64_t program[SIGNALS];

static const uint64_t faults = 1ull << SIGSEGV | 1ull << SIGBUS | 1ull << SIGFPE | 1ull << SIGILL | 1ull << SIGTRAP | 1ull << SIGSYS;

bool ds_is_fault(const siginfo_t *info) { return info->si_signo < 64 && (faults >> info->si_signo & 1) && info->si_code > 0; }

/* In the mask of a context bit sig-1 stands for sig. What cannot wait stays out of it: faults, and
 * the C library's own two. */
static const uint64_t all = ~(faults >> 1 | 3ull << 31);

/* Keeps a signal that came in a critical section, and blocks all others. False: there is no
 * room. */
static bool defer(const siginfo_t *info, ucontext_t *u)
{
	uint64_t mask;

	if (ds_self.deferred >= KEPT)
		return false;
	memcpy(&mask, &u->uc_sigmask, sizeof mask);
	if (!ds_self.deferred)
		mask_before = mask;
	mask |= all;
	memcpy(&u->uc_sigmask, &mask, sizeof mask);
	memcpy(&kept[ds_self.deferred], info, sizeof *kept);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	ds_self.deferred++;
	return true;
}

void ds_deferred(void)
{
	int saved = errno, n = ds_self.deferred;
	uint64_t mask = mask_before;
	long pid = ds_syscall(SYS_getpid), tid = ds_syscall(SYS_gettid);

	for (int i = 0; i < n; i++) {
		siginfo_t info = {0};

		memcpy(&info, &kept[i], sizeof *kept);
		/* With all that it came with; if the queue is full, its number alone. */
		if (ds_syscall(SYS_rt_tgsigqueueinfo, pid, tid, info.si_signo, &info) < 0)
			ds_syscall(SYS_tgkill, pid, tid, info.si_signo);
	}
	ds_self.deferred = 0;
	ds_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
	errno = saved;
}

void ds_me_child(void)
{
	uint64_t mask = mask_before;

	ds_local_child();
	ds_self.name = 0;
	ds_name_child();
	if (!ds_self.deferred)
		return;
	ds_self.deferred = 0; /* they are the parent's */
	ds_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
}

bool ds_interrupted(void)
{
	for (int i = 0; i < ds_self.level && i < LEVELS; i++)
		if (levels[i].critical)
			return true;
	return false;
}

static bool ours(const struct sigaction *a);
static void unveil(struct sigaction *a, uint64_t h);

/* The program's handler of sig, and SIG_DFL in its place if it was to be used once. 0: another
 * thread was faster. */
static uint64_t take_handler(int sig)
{
	uint64_t h = __atomic_load_n(&program[sig], __ATOMIC_ACQUIRE);
	struct sigaction a;

	if (!(h & RESET))
		return h;
	if (!__atomic_compare_exchange_n(&program[sig], &h, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return 0;
	if (REAL(sigaction, sig, NULL, &a) == 0 && ours(&a)) {
		unveil(&a, h); /* as the kernel does it, the flags stay */
		a.sa_handler = SIG_DFL;
		REAL(sigaction, sig, &a, NULL);
	}
	return h;
}

struct entered {
	int level, critical, marked;
};

/* A handler has returned, or an exception leaves it. */
static void leave_handler(struct entered *e)
{
	ds_self.level = e->level;
	ds_self.critical = e->critical;
	ds_marked = e->marked;
	ds_self.handled++;
}

bool (*ds_go_where)(struct ds_where *w, const ucontext_t *u, const siginfo_t *info);

void ds_where_swap(ucontext_t *u, struct ds_where *w)
{
#if defined(__x86_64__)
	greg_t *r = u->uc_mcontext.gregs;
	struct ds_where was = {(uintptr_t)r[REG_RIP], (uintptr_t)r[REG_RSP]};

	r[REG_RIP] = (greg_t)w->pc;
	r[REG_RSP] = (greg_t)w->sp;
	*w = was;
#else
	(void)u, (void)w;
#endif
}

/* What the kernel calls in place of the program's handlers. */
static void on_signal(int sig, siginfo_t *info, void *context)
{
	ucontext_t *u = context;

	ds_local_begin();
	if (ds_self.critical && !ds_is_fault(info) && defer(info, u))
		return;
	uint64_t h = take_handler(sig);
	if (!h) { /* the default, when this returns */
		ds_syscall(SYS_tgkill, ds_syscall(SYS_getpid), ds_syscall(SYS_gettid), sig);
		return;
	}
	__attribute__((cleanup(leave_handler))) struct entered e = {ds_self.level, ds_self.critical, ds_marked};
	if (e.level < LEVELS) {
		const char *stack = u->uc_stack.ss_sp;
		levels[e.level] = (struct level){__builtin_frame_address(0), stack, stack + u->uc_stack.ss_size, e.critical};
	}
	struct ds_where w;
	bool elsewhere = ds_go_where && e.level == 0 && ds_go_where(&w, u, info);
	if (elsewhere)
		ds_where_swap(u, &w);
	ds_self.level = e.level + 1;
	ds_self.critical = 0;
	ds_marked = 0;
	void *f = (void *)(uintptr_t)(h & ~(INFO | RESET));
	if (h & INFO)
		((void (*)(int, siginfo_t *, void *))f)(sig, info, context);
	else
		((void (*)(int))f)(sig);
	if (elsewhere)
		ds_where_swap(u, &w);
}

/* Is a what by_way makes? */
static bool ours(const struct sigaction *a) { return (a->sa_flags & SA_SIGINFO) && a->sa_sigaction == on_signal; }

/* Has a a handler? */
static bool handled(const struct sigaction *a) { return a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN; }

/* What the kernel is told for act, which has a handler; *h: the entry of the table. */
static struct sigaction by_way(const struct sigaction *act, uint64_t *h)
{
	struct sigaction a = *act;

	*h = (uint64_t)(uintptr_t)(void *)act->sa_sigaction;
	*h |= (act->sa_flags & SA_SIGINFO ? INFO : 0) | (act->sa_flags & SA_RESETHAND ? RESET : 0);
	a.sa_sigaction = on_signal;
	a.sa_flags = (act->sa_flags | SA_SIGINFO) & (int)~(unsigned)SA_RESETHAND;
	return a;
}

/* Puts the program's handler h where a names the library's. */
static void unveil(struct sigaction *a, uint64_t h)
{
	if (!ours(a))
		return;
	a->sa_handler = h ? (void (*)(int))(uintptr_t)(h & ~(INFO | RESET)) : SIG_DFL;
	a->sa_flags = (a->sa_flags & ~SA_SIGINFO) | (h & INFO ? SA_SIGINFO : 0) | (h & RESET ? (int)SA_RESETHAND : 0);
}

int ds_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	bool known = sig > 0 && sig < SIGNALS;
	uint64_t before = known ? __atomic_load_n(&program[sig], __ATOMIC_ACQUIRE) : 0, h = 0;
	struct sigaction a;
	int rc;

	if (!known || !act || !handled(act) || ours(act)) {
		rc = REAL(sigaction, sig, act, old);
	} else {
		a = by_way(act, &h);
		/* First the table: until the kernel knows, a signal goes to the new handler by the
		 * old rules. */
		__atomic_store_n(&program[sig], h, __ATOMIC_RELEASE);
		rc = REAL(sigaction, sig, &a, old);
	}
	if (rc == 0 && old && known)
		unveil(old, before);
	return rc;
}

void (*ds_signal_was_set(int sig, void (*old)(int)))(int)
{
	uint64_t h = sig > 0 && sig < SIGNALS ? __atomic_load_n(&program[sig], __ATOMIC_ACQUIRE) : 0;
	int saved = errno;
	struct sigaction a;

	if (old == SIG_ERR)
		return old;
	if (REAL(sigaction, sig, NULL, &a) == 0 && handled(&a) && !ours(&a))
		ds_sigaction(sig, &a, NULL);
	errno = saved;
	return (void *)old == (void *)on_signal ? (void (*)(int))(uintptr_t)(h & ~(INFO | RESET)) : old;
}

/* ---- jumps ------------------------------------------------------------------------- */

/* Does p lie on the alternate stack that was set when l began? */
static bool on_alternate(const struct level *l, const char *p) { return p >= l->low && p < l->high; }

/* Does a jump to that stack pointer leave handler l? */
static bool leaves(const struct level *l, const char *to)
{
	if (!to || on_alternate(l, l->frame) != on_alternate(l, to))
		return true;
	return to > l->frame;
}

/* Cleans up after calls of this level and above. */
static void clean_up(int level)
{
	struct ds_thread *t = &ds_self;

	while (t->cleanups > 0 && t->cleanup[t->cleanups - 1].level >= level) {
		struct ds_cleanup c = t->cleanup[--t->cleanups];

		t->critical = 0;
#ifdef DS_FREE
		if (c.frame)
			continue;
#endif
		((void (*)(void *))((intptr_t)ds_jump + c.run))(c.arg);
	}
}

void ds_jump(const char *to)
{
	struct ds_thread *t = &ds_self;
	bool left = false;

	while (t->level > 0 && !(left && !to)) {
		int i = t->level - 1;

		if (i < LEVELS && !leaves(&levels[i], to))
			break;
		t->level = i;
		t->critical = 0;
		clean_up(i);
		left = true;
	}
	/* The library itself never jumps: if there is a call, a handler that it does not know of
	 * leaves it. */
	if (!left) {
		clean_up(t->level);
		t->critical = 0;
	}
	ds_marked = 0;
	if (t->deferred && !t->critical)
		ds_deferred();
}
