#include "segment/real.h"

#include <dlfcn.h>
#include <errno.h>

struct ds_real ds_real;
bool ds_real_ready;

void ds_real_init(void)
{
	int saved = errno;

	/* Two threads that come here at once store the same values. */
#define X(result, name, args) \
	__atomic_store_n((void **)(void *)&ds_real.name, dlsym(RTLD_NEXT, #name), __ATOMIC_RELAXED);
	DS_REAL(X) DS_REAL_OPTIONAL(X)
#undef X
	__atomic_store_n(&ds_real_ready, true, __ATOMIC_RELEASE);
	errno = saved;
}
