/* What the compiler calls where cancellation or an exception leaves a function that has something
 * to clean up. It lies in libgcc_s, and must be the same library's as the unwinder that calls it:
 * so it cannot be linked statically. To name that library as needed costs each program that is
 * started, of which hardly one unwinds: it is loaded when first called, as the C library does. */
#include "segment/real.h"

#ifdef __EXCEPTIONS
#include <dlfcn.h>
#include <stdlib.h>

struct _Unwind_Exception;
struct _Unwind_Context;

/* The function of libgcc_s that has this name. It goes on living here: nothing unloads it. */
static void *unwinder(const char *name)
{
	void *library = dlopen("libgcc_s.so.1", RTLD_NOW), *f = library ? dlsym(library, name) : NULL;

	if (!f)
		abort();
	return f;
}

/* Looks name up once. Two threads that come here at once store the same address. */
#define UNWINDER(type, name) \
	static type *real; \
	type *f = __atomic_load_n(&real, __ATOMIC_RELAXED); \
	if (!f) { \
		f = (type *)unwinder(name); \
		__atomic_store_n(&real, f, __ATOMIC_RELAXED); \
	}

/* The thread sanitizer would have these two clean up after themselves, by a call of themselves. */
#define BARE __attribute__((no_sanitize("thread")))

typedef void resume_fn(struct _Unwind_Exception *e);
typedef int personality_fn(int version, int actions, uint64_t class, struct _Unwind_Exception *e, struct _Unwind_Context *at);

extern resume_fn _Unwind_Resume DS_HIDDEN __attribute__((noreturn));
extern personality_fn __gcc_personality_v0 DS_HIDDEN;

BARE void _Unwind_Resume(struct _Unwind_Exception *e)
{
	UNWINDER(resume_fn, "_Unwind_Resume");
	f(e);
	abort();
}

BARE int __gcc_personality_v0(int version, int actions, uint64_t class, struct _Unwind_Exception *e, struct _Unwind_Context *at)
{
	UNWINDER(personality_fn, "__gcc_personality_v0");
	return f(version, actions, class, e, at);
}
#endif
