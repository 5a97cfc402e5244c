/* The kernel's form of struct sigaction. */
#ifndef DS_FREE_SIGNAL_H
#define DS_FREE_SIGNAL_H

#include "segment/real.h"

#include <string.h>

struct kernel_sigaction {
	uintptr_t handler, flags, restorer;
	uint64_t mask;
};

static inline void sigaction_to_kernel(struct kernel_sigaction *to, const struct sigaction *from)
{
	*to = (struct kernel_sigaction){(uintptr_t)(void *)from->sa_sigaction, (unsigned)from->sa_flags, (uintptr_t)from->sa_restorer, 0};
	memcpy(&to->mask, &from->sa_mask, sizeof to->mask);
}

static inline void sigaction_from_kernel(struct sigaction *to, const struct kernel_sigaction *from)
{
	*to = (struct sigaction){.sa_flags = (int)from->flags, .sa_restorer = (void (*)(void))from->restorer};
	to->sa_sigaction = (void (*)(int, siginfo_t *, void *))from->handler;
	memcpy(&to->sa_mask, &from->mask, sizeof from->mask);
}

/* rt_sigaction, of the program. No lock. */
long signal_call(const long a[6]) DS_HIDDEN;

#endif
