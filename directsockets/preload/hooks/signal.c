/* Signal handlers, and jumps out of them: segment/thread.h explains why. */
#include "hooks/hooks.h"

#include <setjmp.h>

/* ---- handlers ------------------------------------------------------------------------ */

EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	/* A child of vfork has handlers of its own, and the parent's memory. */
	if (act && act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN && fd_vforked())
		return REAL(sigaction, sig, act, old);
	return ds_sigaction(sig, act, old);
}
ALIAS(__sigaction, sigaction);

typedef void handler(int sig);
typedef handler *signal_fn(int sig, handler *to);
typedef void jump_fn(jmp_buf env, int value);

#undef sigset
#define SIGNALS(X) X(signal) X(bsd_signal) X(ssignal) X(sysv_signal) X(__sysv_signal) X(sigset)
#define JUMPS(X) X(longjmp) X(_longjmp) X(siglongjmp) X(__longjmp_chk)

/* The C library's own functions, once signals_init has run. */
static struct {
#define X(name) signal_fn *real_##name;
	SIGNALS(X)
#undef X
#define X(name) jump_fn *real_##name;
	JUMPS(X)
#undef X
} libc_functions DS_START_DATA;

#define NEXT(type, name) (libc_functions.real_##name ? libc_functions.real_##name : (type *)ds_next(#name))

#define SIGNAL(name) \
	extern handler *name(int sig, handler *to) EXPORT; \
	handler *name(int sig, handler *to) { return ds_signal_was_set(sig, NEXT(signal_fn, name)(sig, to)); }

SIGNALS(SIGNAL)

/* ---- longjmp --------------------------------------------------------------------------- */

/* The stack pointer that env will restore; NULL: not known. */
static const char *jump_target(const struct __jmp_buf_tag *env)
{
#if defined(__x86_64__) && defined(__GLIBC__)
	uintptr_t guard, sp = (uintptr_t)env->__jmpbuf[6];

	__asm__("mov %%fs:0x30, %0" : "=r"(guard));
	return (const char *)((sp >> 17 | sp << 47) ^ guard);
#else
	(void)env;
	return NULL;
#endif
}

#define JUMP(name) \
	extern void name(jmp_buf env, int value) EXPORT __attribute__((noreturn)); \
	void name(jmp_buf env, int value) \
	{ \
		jump_fn *jump = NEXT(jump_fn, name); \
		ds_jump(jump_target(env)); \
		jump(env, value); \
		__builtin_unreachable(); \
	}

JUMPS(JUMP)

/* Looks the C library's functions up now: in a handler that cannot be done. */
DS_START void signals_init(void)
{
#define X(name) #name "\0"
	static const char names[] = SIGNALS(X) JUMPS(X);
#undef X

	ds_next_all(names, (void **)(void *)&libc_functions, sizeof libc_functions / sizeof(void *));
}
