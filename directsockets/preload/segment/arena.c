#include "segment/arena.h"

#include <string.h>
#include <sys/mman.h>

enum { PLACES = 128 };

/* What this process knows of one arena, in private memory. */
struct arena {
	struct arena *next;
	struct ds_shared *places;
	unsigned lost; /* places closed here that others still refer to */
	unsigned free;
	unsigned last; /* the place that was freed last: the first to be taken again */
	uint8_t state[PLACES];
};
enum { FREE, USED, LOST };

static struct arena *arenas;

/* Frees lost places that no process refers to any more, and unmaps arenas that hold nothing but
 * lost places. */
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
		REAL(munmap, a->places, PLACES * sizeof *a->places);
		REAL(munmap, a, sizeof *a);
	}
}

/* Adds an arena; NULL: no memory. */
static struct arena *add(void)
{
	struct arena *a = REAL(mmap, NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *p;

	if (a == MAP_FAILED)
		return NULL;
	p = REAL(mmap, NULL, PLACES * sizeof *a->places, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		REAL(munmap, a, sizeof *a);
		return NULL;
	}
	a->places = p;
	a->free = PLACES;
	a->next = arenas;
	arenas = a;
	return a;
}

/* The index of a free place of a; PLACES: there is none. */
static unsigned place(const struct arena *a)
{
	for (unsigned n = 0, i = a->last; n < PLACES; n++, i = (i + 1) % PLACES)
		if (a->state[i] == FREE)
			return i;
	return PLACES;
}

struct ds_shared *ds_arena_get(void)
{
	struct arena *a;

	for (a = arenas; a && !a->free; a = a->next)
		;
	if (!a) {
		sweep();
		for (a = arenas; a && !a->free; a = a->next)
			;
	}
	if (!a && !(a = add()))
		return NULL;
	unsigned i = place(a);
	if (i == PLACES)
		return NULL;
	struct ds_shared *s = &a->places[i];
	a->state[i] = USED;
	a->free--;
	memset(s, 0, sizeof *s);
	__atomic_store_n(&s->refs, 1, __ATOMIC_RELEASE);
	return s;
}

bool ds_arena_leave(struct ds_shared *s)
{
	uint32_t n = __atomic_load_n(&s->refs, __ATOMIC_RELAXED);

	while (!__atomic_compare_exchange_n(&s->refs, &n, n == 1 ? DS_ENDING : n - 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		;
	return n == 1;
}

void ds_arena_put(struct ds_shared *s, bool last)
{
	/* Who writes what is left may have come since. */
	last = last && __atomic_and_fetch(&s->refs, ~DS_ENDING, __ATOMIC_ACQ_REL) == 0;
	for (struct arena *a = arenas; a; a = a->next) {
		if (s < a->places || s >= a->places + PLACES)
			continue;
		a->state[s - a->places] = last ? FREE : LOST;
		if (last) {
			a->last = (unsigned)(s - a->places);
			a->free++;
		} else {
			a->lost++;
		}
		return;
	}
}

void ds_arena_child(void)
{
	/* What the parent knows of its arenas is in private memory: forget the list; the
	 * places stay mapped. */
	arenas = NULL;
}
