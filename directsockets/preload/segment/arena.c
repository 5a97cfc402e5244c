#include "segment/arena.h"

#include <string.h>
#include <sys/mman.h>

enum { PLACES = 128 };

/* Of this process alone. */
struct arena {
	struct arena *next;
	struct ds_shared *places;
	unsigned lost; /* places closed here that others still refer to */
	unsigned free;
	uint8_t state[PLACES];
};
enum { FREE, USED, LOST };

static struct arena *arenas;
static struct ds_lock arenas_lock;

/* With arenas_lock. Looks for places that the others have let go of, and for arenas of which
 * nothing but what was lost is left. */
static void sweep(void)
{
	for (struct arena **at = &arenas, *a; (a = *at);) {
		for (int i = 0; a->lost && i < PLACES; i++)
			if (a->state[i] == LOST && !__atomic_load_n(&a->places[i].refs, __ATOMIC_ACQUIRE)) {
				a->state[i] = FREE;
				a->free++;
				a->lost--;
			}
		if (a->lost < PLACES) {
			at = &a->next;
			continue;
		}
		*at = a->next;
		REAL(munmap)(a->places, PLACES * sizeof *a->places);
		REAL(munmap)(a, sizeof *a);
	}
}

/* With arenas_lock. One arena more; NULL: no memory. */
static struct arena *add(void)
{
	struct arena *a = REAL(mmap)(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *p;

	if (a == MAP_FAILED)
		return NULL;
	p = REAL(mmap)(NULL, PLACES * sizeof *a->places, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		REAL(munmap)(a, sizeof *a);
		return NULL;
	}
	a->places = p;
	a->free = PLACES;
	a->next = arenas;
	arenas = a;
	return a;
}

struct ds_shared *ds_arena_get(void)
{
	struct ds_shared *s = NULL;
	struct arena *a;

	if (ds_own_lock(&arenas_lock) == DS_NESTED)
		return NULL;
	for (a = arenas; a && !a->free; a = a->next)
		;
	if (!a) {
		sweep();
		for (a = arenas; a && !a->free; a = a->next)
			;
	}
	if (!a)
		a = add();
	for (int i = 0; a && i < PLACES; i++)
		if (a->state[i] == FREE) {
			a->state[i] = USED;
			a->free--;
			s = &a->places[i];
			memset(s, 0, sizeof *s);
			__atomic_store_n(&s->refs, 1, __ATOMIC_RELEASE);
			break;
		}
	ds_own_unlock(&arenas_lock);
	return s;
}

/* With arenas_lock. s is closed here; last: nobody else refers to it. */
static void let_go(const struct ds_shared *s, bool last)
{
	for (struct arena *a = arenas; a; a = a->next) {
		if (s < a->places || s >= a->places + PLACES)
			continue;
		a->state[s - a->places] = last ? FREE : LOST;
		if (last)
			a->free++;
		else
			a->lost++;
		return;
	}
}

bool ds_arena_unref(struct ds_shared *s)
{
	bool taken = ds_own_lock(&arenas_lock) != DS_NESTED, last;

	last = __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL) == 0;
	if (taken) { /* if not, the place stays as it is */
		let_go(s, last);
		ds_own_unlock(&arenas_lock);
	}
	return last;
}

void ds_arena_child(void)
{
	/* What the parent knows of its arenas is in private memory: forget the list; the
	 * places stay mapped. Another thread may have held the lock. */
	arenas = NULL;
	arenas_lock = (struct ds_lock){0};
}
