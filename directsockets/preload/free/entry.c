/* Where a program's system calls arrive: from the places where its own code made them.
 *
 *   static C   stub ─▶ ds_free_entry ─┬─ not ours: the kernel ──▶ behind the place
 *                                     └─ ours: ds_free_entered ─▶ behind the place
 *   Go         Syscall6 ─▶ ds_free_go
 *              pollDesc.wait ─▶ ds_free_poll ─┬─ no answer is likely soon ─▶ runtime_pollWait: it is parked
 *                                             └─ else: it yields ─▶ FD.Read, which reads again
 *              sigtramp ─▶ ds_free_signal: the thread is in Syscall6 ─▶ sigtrampgo
 *
 * The entries are in entry_amd64.c and entry_arm64.c. To a place in C this is one instruction,
 * which changes what the kernel's changes, alone. The library is compiled for the general
 * registers, so that the others need not be kept.
 *
 * A call that makes a thread, or a child on another stack or on this one, returns twice. The kernel
 * is called when nothing of the hook is on the stack. All places that make threads come here, in C:
 * so the library knows whether there is one thread. */
#include "free/entry.h"
#include "free/signal.h"
#include "hooks/go.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>

struct outcome {
	long rc; /* the result, or -errno; unless DONE the number of the call */
	long rest;
};

/* vfork, which newer architectures make by clone. */
static bool is_vfork(long nr)
{
#ifdef SYS_vfork
	return nr == SYS_vfork;
#else
	return (void)nr, false;
#endif
}

/* What clone, clone3 or vfork is to make; DONE: rc has an error; KERNEL: a process on a copy of
 * this stack. */
static enum rest makes(long nr, const long a[6], long *rc)
{
	const struct clone_args *how = (const struct clone_args *)a[0];
	bool three = nr == SYS_clone3;

	if (three && ((size_t)a[1] < CLONE_ARGS_SIZE_VER0 || !ds_readable(how, CLONE_ARGS_SIZE_VER0)))
		return KERNEL; /* which says what is wrong */
	bool old = is_vfork(nr);
	unsigned long flags = old ? CLONE_VM | CLONE_VFORK : three ? how->flags : (unsigned long)a[0];
	bool stack = !old && (three ? how->stack : (unsigned long)a[1]);

	if (!stack && !(flags & CLONE_VM))
		return KERNEL;
	if (three && stack) { /* callers try clone then */
		*rc = -ENOSYS;
		return DONE;
	}
	if ((flags & (CLONE_VM | CLONE_VFORK)) == (CLONE_VM | CLONE_VFORK))
		return stack ? VFORK_STACK : VFORK;
	if (!stack || !entry_begins(flags, a)) {
		*rc = -EINVAL;
		return DONE;
	}
	return flags & CLONE_VM ? THREAD : FORK;
}

/* Prepares a call that returns twice, from the place where back is. */
static struct outcome twice(long nr, const long a[6], uintptr_t back)
{
	long rc = nr;
	enum rest rest = makes(nr, a, &rc);

	if (rest == DONE || rest == KERNEL)
		return (struct outcome){rc, rest};
	if (!entry_prepare(rest, a, back))
		return (struct outcome){-EAGAIN, DONE};
	if (rest == FORK)
		fork_prepare();
	if (rest == THREAD)
		slot_threads();
	return (struct outcome){rc, rest};
}

void ds_free_forked(long pid)
{
	if (pid == 0)
		fork_child();
	else
		fork_parent((pid_t)pid);
}

long ds_free_calls;
uintptr_t ds_free_called;

static bool is_clone(long nr) { return nr == SYS_clone || nr == SYS_clone3 || is_vfork(nr); }

/* Makes a system call that may be ours: of this thread, which has a slot. */
static long made(long nr, const long a[6])
{
	long rc;

	if (nr == SYS_exit) {
		slot_leave();
		for (;;)
			owned_call(nr, a[0], 0, 0);
	}
	if (nr == SYS_rt_sigaction)
		rc = signal_call(a);
	else if (!every_call(nr, a, &rc))
		rc = ds_kernel_call(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	return rc == -1 ? -errno : rc;
}

/* A system call of a place in C, which goes on at back. */
struct outcome ds_free_entered(long nr, const long a[6], uintptr_t back) DS_HIDDEN;
struct outcome ds_free_entered(long nr, const long a[6], uintptr_t back)
{
	if (!slot_here() && !slot_find())
		return (struct outcome){-ENOMEM, DONE};
	/* The program may have jumped out of a handler: nobody told this library. */
	if (ds_self.level > 0)
		ds_jump(__builtin_frame_address(0));
	if (is_clone(nr)) {
		struct outcome o = twice(nr, a, back);

		if (o.rest != KERNEL)
			return o;
	}
	return (struct outcome){made(nr, a), DONE};
}

/* A system call of Go's Syscall6, on the thread's own stack. */
struct go_outcome ds_free_of_go(long nr, const long a[6]) DS_HIDDEN;
struct go_outcome ds_free_of_go(long nr, const long a[6])
{
	long rc = nr;

	if (ds_one_thread())
		slot_threads();
	if (is_clone(nr) && makes(nr, a, &rc) != KERNEL)
		return (struct go_outcome){nr, true};
	/* A child of vfork does not come back, and its parent has the same slot. */
	if (nr == SYS_execve || nr == SYS_execveat || nr == SYS_exit || nr == SYS_exit_group)
		slot_here()->go.inside = 0;
	return (struct go_outcome){made(nr, a), false};
}

struct go_stack *ds_free_first(void) DS_HIDDEN;
struct go_stack *ds_free_first(void) { return slot_find() ? &slot_here()->go : NULL; }
