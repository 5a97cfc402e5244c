#include "free/slot.h"

#include "segment/kernel.h"

#include <stddef.h>
#include <string.h>

_Static_assert(offsetof(struct thread_slot, distance) == 8 && offsetof(struct thread_slot, fs) == 16 && offsetof(struct thread_slot, stack) == 24 &&
		       offsetof(struct thread_slot, inside) == 32 && offsetof(struct thread_slot, tid) == 36 && offsetof(struct thread_slot, back) == 40,
	       "as entry.c has it");

enum {
	GUARD = 4096,
	STACK = 256 << 10,
	LEAST = 16, /* slots that are made before anybody looks for threads that have ended */
};

/* The templates, from the linker. */
extern char __start_ds_local[] DS_HIDDEN, __stop_ds_local[] DS_HIDDEN;

/* The bytes of the templates. */
static size_t local_size(void) { return (uintptr_t)__stop_ds_local - (uintptr_t)__start_ds_local; }

static struct thread_slot *slots; /* all that were made */
static int made, look_at = LEAST; /* how many; at how many one looks for threads that have ended */
static pid_t process;

/* System calls without errno, which lies in the slot. */
static long call3(long nr, long a, long b, long c)
{
	long rc;

	__asm__ volatile("syscall" : "=a"(rc) : "a"(nr), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return rc;
}

static char *map(size_t n)
{
	register long flags __asm__("r10") = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, fd __asm__("r8") = -1, at __asm__("r9") = 0;
	long rc;

	__asm__ volatile("syscall" : "=a"(rc) : "a"(SYS_mmap), "D"(0), "S"(n), "d"(PROT_READ | PROT_WRITE), "r"(flags), "r"(fd), "r"(at) : "rcx", "r11", "memory");
	return rc < 0 && rc > -4096 ? NULL : (char *)rc;
}

static int get_tid(const struct thread_slot *s) { return __atomic_load_n(&s->tid, __ATOMIC_ACQUIRE); }

/* Takes s, which has this owner, for the thread tid. */
static bool take(struct thread_slot *s, int owner, int tid) { return __atomic_compare_exchange_n(&s->tid, &owner, tid, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED); }

/* A slot that nobody has, for the thread tid; NULL: there is none. If dead, the kernel is asked for
 * the threads of the others: a slot of the same number as tid is an earlier thread's. */
static struct thread_slot *reuse(int tid, bool dead)
{
	for (struct thread_slot *s = __atomic_load_n(&slots, __ATOMIC_ACQUIRE); s; s = s->next) {
		int owner = get_tid(s);

		if ((!owner || (dead && (owner == tid || call3(SYS_tkill, owner, 0, 0) == -ESRCH))) && take(s, owner, tid))
			return s;
	}
	return NULL;
}

/* A new slot for the thread tid; NULL: there is no memory. */
static struct thread_slot *make(int tid)
{
	const size_t head = (sizeof(struct thread_slot) + local_size() + GUARD - 1) & ~(size_t)(GUARD - 1);
	char *p = map(GUARD + STACK + head);

	if (!p)
		return NULL;
	call3(SYS_mprotect, (long)p, GUARD, PROT_NONE);
	struct thread_slot *s = (struct thread_slot *)(void *)(p + GUARD + STACK), *first = __atomic_load_n(&slots, __ATOMIC_RELAXED);
	s->self = s;
	s->distance = (uintptr_t)s->copies - (uintptr_t)__start_ds_local;
	s->stack = p + GUARD + STACK;
	s->tid = tid;
	do
		s->next = first;
	while (!__atomic_compare_exchange_n(&slots, &first, s, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	__atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
	return s;
}

/* A slot for the thread tid, with all of its variables zero. The threads that have ended are looked
 * for when there are twice as many slots as after the last time. */
static struct thread_slot *new_slot(int tid)
{
	struct thread_slot *s = reuse(tid, false);
	int n = __atomic_load_n(&made, __ATOMIC_RELAXED), at = __atomic_load_n(&look_at, __ATOMIC_RELAXED);

	if (!s && n >= at && call3(SYS_getpid, 0, 0, 0) == process) {
		s = reuse(tid, true);
		/* It found one at once, or there are many threads: then not again soon. */
		if (!s)
			__atomic_store_n(&look_at, 2 * n, __ATOMIC_RELAXED);
	}
	if (!s)
		return make(tid);
	s->inside = 0;
	memset(s->copies, 0, local_size());
	return s;
}

bool slot_find(void)
{
	struct thread_slot *s = (struct thread_slot *)__builtin_ia32_rdgsbase64();
	uintptr_t fs = __builtin_ia32_rdfsbase64();
	int tid = (int)call3(SYS_gettid, 0, 0, 0);

	if (!process)
		process = (pid_t)call3(SYS_getpid, 0, 0, 0);
	if (!s || get_tid(s) != tid) {
		if (slots)
			slot_threads();
		s = new_slot(tid);
	}
	if (!s)
		return false;
	s->fs = fs;
	__builtin_ia32_wrgsbase64((uintptr_t)s);
	return true;
}

void slot_leave(void)
{
	struct thread_slot *s = slot_here();

	if (!s || get_tid(s) != call3(SYS_gettid, 0, 0, 0))
		return;
	__builtin_ia32_wrgsbase64(0);
	__atomic_store_n(&s->tid, 0, __ATOMIC_RELEASE);
}

void ds_local_begin(void)
{
	if (!slot_here() && !slot_find())
		__builtin_trap(); /* a handler cannot go on without */
}

void ds_local_child(void)
{
	struct thread_slot *here = slot_here();

	process = (pid_t)call3(SYS_getpid, 0, 0, 0);
	for (struct thread_slot *s = slots; s; s = s->next)
		s->tid = s == here ? (int)call3(SYS_gettid, 0, 0, 0) : 0;
}

int *__errno_location(void) { return &((struct thread_slot *)__builtin_ia32_rdgsbase64())->err; }
