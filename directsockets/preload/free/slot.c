#include "free/slot.h"

#include "segment/kernel.h"

#include <stddef.h>
#include <string.h>

_Static_assert(offsetof(struct thread_slot, distance) == 8 && offsetof(struct thread_slot, fs) == 16 && offsetof(struct thread_slot, go) == 24 &&
		       offsetof(struct thread_slot, back) == 40,
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

bool slot_find(void)
{
	struct thread_slot *s = (struct thread_slot *)__builtin_ia32_rdgsbase64();
	uintptr_t fs = __builtin_ia32_rdfsbase64();
	int tid = (int)owned_call(SYS_gettid, 0, 0, 0);

	if (!s || owned_tid(&s->owned) != tid) {
		if (slots.first)
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

	if (!s || owned_tid(&s->owned) != owned_call(SYS_gettid, 0, 0, 0))
		return;
	__builtin_ia32_wrgsbase64(0);
	__atomic_store_n(&s->owned.tid, 0, __ATOMIC_RELEASE);
}

void ds_local_begin(void)
{
	if (!slot_here() && !slot_find())
		__builtin_trap(); /* a handler cannot go on without */
}

void ds_local_child(void)
{
	struct thread_slot *here = slot_here();

	slots.process = (pid_t)owned_call(SYS_getpid, 0, 0, 0);
	for (struct owned *o = slots.first; o; o = o->next)
		o->tid = here && o == &here->owned ? (int)owned_call(SYS_gettid, 0, 0, 0) : 0;
}

int *__errno_location(void) { return &((struct thread_slot *)__builtin_ia32_rdgsbase64())->err; }
