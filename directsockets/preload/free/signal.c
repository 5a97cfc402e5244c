#include "free/signal.h"
#include "hooks/hooks.h"

#include <errno.h>

long signal_call(const long a[6])
{
	const struct kernel_sigaction *act = (const void *)a[1];
	struct kernel_sigaction *old = (void *)a[2], was;
	struct sigaction in, out;

	/* As the kernel's own; a child of vfork has handlers of its own, and the parent's memory.
	 * */
	if (a[3] != DS_SIGSET || (act && !ds_readable(act, sizeof *act)) || (old && !ds_writable(old, sizeof *old)) || fd_vforked())
		return ds_syscall(SYS_rt_sigaction, a[0], a[1], a[2], a[3]);
	if (act)
		sigaction_from_kernel(&in, act);
	long rc = ds_sigaction((int)a[0], act ? &in : NULL, old ? &out : NULL);
	if (rc == 0 && old) {
		sigaction_to_kernel(&was, &out);
		*old = was;
	}
	return rc;
}
