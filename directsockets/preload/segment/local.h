/* Variables that each thread has a copy of, which begins as zero:
 *
 *   static DS_LOCAL int depths;
 *   #define depth DS_HERE(depths)
 *
 * The library without a C library (free/) has no thread-local storage: what is declared is a
 * template there, and each thread has a copy of all templates in its slot, which says how far it is
 * from the template (free/slot.h). */
#ifndef DS_LOCAL_H
#define DS_LOCAL_H

#ifdef DS_FREE
#include <stdint.h>

#define DS_LOCAL __attribute__((section("ds_local")))
/* How far this thread's variables are from their templates. */
static inline uintptr_t ds_local_distance(void)
{
#if defined(__aarch64__)
	uintptr_t base, *slot;

	__asm__("mrs %0, tpidr_el0" : "=r"(base));
	slot = base ? ((uintptr_t **)base)[1] : 0;
	return slot ? slot[1] : 0;
#else
	uintptr_t d;

	__asm__("movq %%gs:0x100008, %0" : "=r"(d)); /* free/slot.h: SLOT_NONE */
	return d;
#endif
}
#define DS_HERE(template) (*(__typeof__(&(template)))((uintptr_t)&(template) + ds_local_distance()))

/* Finds this thread's copies, or makes them: before a signal handler uses them, which may run in a
 * thread that has none. No lock. */
void ds_local_begin(void) __attribute__((visibility("hidden")));

/* In the child of a fork: the copies of other threads are nobody's. */
void ds_local_child(void) __attribute__((visibility("hidden")));
#else
#define DS_LOCAL __thread __attribute__((tls_model("initial-exec")))
#define DS_HERE(variable) (variable)
static inline void ds_local_begin(void) {}
static inline void ds_local_child(void) {}
#endif

#endif
