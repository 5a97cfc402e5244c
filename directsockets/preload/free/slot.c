#include "free/slot.h"

#include "segment/kernel.h"
#include "segment/memory.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <asm/prctl.h>
#endif

_Static_assert(offsetof(struct thread_slot, distance) == 8 && offsetof(struct thread_slot, word) == 16 && offsetof(struct thread_slot, go) == 24 &&
		       offsetof(struct thread_slot, back) == 48,
	       "as entry.c has it");

/* The templates, from the linker. */
extern char __start_ds_local[] DS_HIDDEN, __stop_ds_local[] DS_HIDDEN;

/* The bytes of the templates. */
static size_t local_size(void) { return (uintptr_t)__stop_ds_local - (uintptr_t)__start_ds_local; }

static struct owned_list slots;

static struct thread_slot *slot_of(struct owned *o) { return (struct thread_slot *)(void *)((char *)o - offsetof(struct thread_slot, owned)); }

/* A new slot. */
static struct owned *make(void)
{
	char *top = owned_map(sizeof(struct thread_slot) + local_size());
	struct thread_slot *s = (struct thread_slot *)(void *)top;

	if (!s)
		return NULL;
	s->self = s;
	s->distance = (uintptr_t)s->copies - (uintptr_t)__start_ds_local;
	s->go.top = top;
	return &s->owned;
}

/* A slot for the thread tid, with all of its variables zero. */
static struct thread_slot *new_slot(int tid)
{
	bool fresh;
	struct owned *o = owned_get(&slots, tid, make, &fresh);

	if (!o || fresh)
		return o ? slot_of(o) : NULL;
	slot_of(o)->go.inside = 0;
	memset(slot_of(o)->copies, 0, local_size());
	return slot_of(o);
}

bool slot_of_go;

#if defined(__aarch64__)
/* Where TPIDR_EL0 leads to that of a thread without a libc. */
static uintptr_t word_of(const struct thread_slot *s) { return (uintptr_t)s - sizeof s->self; }

long slot_begin(bool fsgsbase) { return (void)fsgsbase, 0; }
void slot_begun(bool go) { slot_of_go = go; }

bool slot_set(const struct thread_slot *s)
{
	uintptr_t word = slot_word();
	const struct thread_slot *was = slot_at_base();

	if (!word || (was && word == word_of(was)))
		__asm__ volatile("msr tpidr_el0, %0" : : "r"(s ? word_of(s) : 0) : "memory");
	else
		((const struct thread_slot **)word)[1] = s;
	return true;
}

/* Is it one of this library's? Else the program uses the word itself. */
static bool is_slot(const struct thread_slot *s)
{
	for (const struct owned *o = __atomic_load_n(&slots.first, __ATOMIC_ACQUIRE); o; o = o->next)
		if (o == &s->owned)
			return true;
	return false;
}

bool slot_find(void)
{
	struct thread_slot *s = slot_at_base();
	int tid = (int)owned_call(SYS_gettid, 0, 0, 0);

	if (s && !is_slot(s))
		return false;
	if (!s || owned_tid(&s->owned) != tid) {
		if (slots.first)
			slot_threads();
		s = new_slot(tid);
	}
	if (!s || !slot_set(s))
		return false;
	s->word = slot_word();
	return true;
}
#else
bool slot_fsgsbase;

long slot_begin(bool fsgsbase)
{
	enum { PAGE_SIZE = 1 << DS_PAGE_SHIFT };
	long at = owned_mmap(SLOT_NONE, PAGE_SIZE, PROT_READ, MAP_FIXED_NOREPLACE);

	slot_fsgsbase = fsgsbase;
	if (at > 0 && at != SLOT_NONE) { /* a kernel before 4.17 takes the address for a wish */
		owned_call(SYS_munmap, at, PAGE_SIZE, 0);
		return -EEXIST;
	}
	return at < 0 ? at : 0;
}

void slot_begun(bool go)
{
	slot_here()->word = 1; /* as no thread has it: the first finds its slot when Go has begun */
	slot_of_go = go;
}

bool slot_set(const struct thread_slot *s)
{
	uintptr_t base = s ? (uintptr_t)s - SLOT_NONE : 0;

	if (!slot_fsgsbase)
		return owned_call(SYS_arch_prctl, ARCH_SET_GS, (long)base, 0) == 0;
	__builtin_ia32_wrgsbase64(base);
	return true;
}

bool slot_find(void)
{
	struct thread_slot *s = slot_at_base();
	uintptr_t word = slot_of_go ? slot_word() : 0;
	int tid = (int)owned_call(SYS_gettid, 0, 0, 0);

	if (!s || owned_tid(&s->owned) != tid) {
		if (slots.first)
			slot_threads();
		s = new_slot(tid);
	}
	if (!s)
		return false;
	s->word = word ? word : (uintptr_t)s;
	if (!slot_set(s))
		return false;
	/* A Go that uses it itself is one that this library does not know. ds_readable needs errno,
	 * which is in the slot. */
	if (word && !(ds_readable((const void *)word, sizeof word) && *(const uintptr_t *)word == word)) {
		slot_leave();
		return false;
	}
	if (slot_of_go && !word)
		__asm__ volatile("movq %0, %%fs:0" : : "r"(s) : "memory");
	return true;
}

#endif

void slot_leave(void)
{
	struct thread_slot *s = slot_here();

	if (!s || owned_tid(&s->owned) != owned_call(SYS_gettid, 0, 0, 0) || !slot_set(NULL))
		return;
	__atomic_store_n(&s->owned.tid, 0, __ATOMIC_RELEASE);
}

/* In a thread of C that the kernel has just made a handler comes before the thread has left its
 * parent's slot (entry.c). A child process has its parent's: until ds_local_child, or for good. */
static bool is_of_another(const struct thread_slot *s)
{
#if defined(__aarch64__)
	return (void)s, false;
#endif
	return !slot_of_go && owned_tid(&s->owned) != owned_call(SYS_gettid, 0, 0, 0) && slots.process == owned_call(SYS_getpid, 0, 0, 0);
}

void ds_local_begin(void)
{
	const struct thread_slot *s = slot_here();

	if ((!s || is_of_another(s)) && !slot_find())
		__builtin_trap(); /* a handler cannot go on without */
}

void ds_local_child(void)
{
	struct thread_slot *here = slot_here();

	slots.process = (pid_t)owned_call(SYS_getpid, 0, 0, 0);
	for (struct owned *o = slots.first; o; o = o->next)
		o->tid = here && o == &here->owned ? (int)owned_call(SYS_gettid, 0, 0, 0) : 0;
}

int *__errno_location(void) { return &slot_at_base()->err; }
