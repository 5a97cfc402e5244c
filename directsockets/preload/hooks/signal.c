/* Signal handlers, and jumps out of them: segment/thread.h explains why. */
#include "hooks/hooks.h"

#include <setjmp.h>

/* ---- handlers ------------------------------------------------------------------------ */

EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	/* A child of vfork has handlers of its own, and the parent's memory. */
	if (act && act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN && fd_vforked())
		return REAL(sigaction)(sig, act, old);
	return ds_sigaction(sig, act, old);
}
ALIAS(__sigaction, sigaction);

typedef void handler(int sig);
typedef handler *signal_fn(int sig, handler *to);

#define SIGNAL(name) \
	static signal_fn *real_##name; \
	extern handler *name(int sig, handler *to) EXPORT; \
	handler *name(int sig, handler *to) \
	{ \
		return ds_signal_was_set(sig, (real_##name ? real_##name : (signal_fn *)ds_next(#name))(sig, to)); \
	}

#undef sigset
SIGNAL(signal)
SIGNAL(bsd_signal)
SIGNAL(ssignal)
SIGNAL(sysv_signal)
SIGNAL(__sysv_signal)
SIGNAL(sigset)

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

typedef void jump_fn(jmp_buf env, int value);

#define JUMP(name) \
	static jump_fn *real_##name; \
	extern void name(jmp_buf env, int value) EXPORT __attribute__((noreturn)); \
	void name(jmp_buf env, int value) \
	{ \
		jump_fn *next = real_##name ? real_##name : (jump_fn *)ds_next(#name); \
		ds_jump(jump_target(env)); \
		next(env, value); \
		__builtin_unreachable(); \
	}

JUMP(longjmp)
JUMP(_longjmp)
JUMP(siglongjmp)
JUMP(__longjmp_chk)

#define FIND(name) *(void **)(void *)&real_##name = ds_next(#name)

/* Looks the C library's functions up now: in a handler that cannot be done. */
void signals_init(void)
{
	FIND(signal);
	FIND(bsd_signal);
	FIND(ssignal);
	FIND(sysv_signal);
	FIND(__sysv_signal);
	FIND(sigset);
	FIND(longjmp);
	FIND(_longjmp);
	FIND(siglongjmp);
	FIND(__longjmp_chk);
}
