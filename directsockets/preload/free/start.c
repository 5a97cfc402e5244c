/* How the library begins, without a dynamic linker: who maps it has applied its relocations. */
#include "free/slot.h"
#include "hooks/hooks.h"

#include <elf.h>
#include <errno.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

EXPORT const uint32_t ds_free_version = 7;

extern const Elf64_Ehdr __ehdr_start DS_HIDDEN;
extern const Elf64_Dyn _DYNAMIC[] DS_HIDDEN;
void libc_begin(const unsigned long *stack, bool go) DS_HIDDEN;

/* Runs the constructors. */
static void construct(void)
{
	typedef void constructor(void);
	constructor *const *f = NULL;
	size_t n = 0;

	for (const Elf64_Dyn *d = _DYNAMIC; d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_INIT_ARRAY)
			f = (const void *)((const char *)&__ehdr_start + d->d_un.d_ptr);
		else if (d->d_tag == DT_INIT_ARRAYSZ)
			n = d->d_un.d_val / sizeof *f;
	for (size_t i = 0; i < n; i++)
		f[i]();
}

/* Takes on the epoll instances and the listeners that a running program has, below end. Its other
 * descriptors stay the kernel's. */
static void adopt(int end)
{
	/* The kernel says ENOENT of an instance without a member, EINVAL of what is no instance. */
	int probe = (int)ds_syscall(SYS_eventfd2, 0, 0);

	for (int fd = STDERR_FILENO + 1; fd < end && probe >= 0; fd++)
		if (fd != probe && REAL(epoll_ctl, fd, EPOLL_CTL_DEL, probe, NULL) != 0 && errno == ENOENT)
			epi_new(fd);
	if (probe >= 0)
		ds_syscall(SYS_close, probe);
	adopt_listeners(INHERITED_END, end);
}

/* Called once. At a program's start, before its first instruction: stack is the stack pointer that
 * the kernel gave it, and end is 0. In a running program, whose threads are all stopped: stack is a
 * copy of what was there, end the first number above its descriptors, threads how many it has. open
 * has a bit for each number below 32 that may be open: a tracer notices every system call. go is
 * where Go's Syscall6 comes back from the kernel; 0: the program is C's.
 * 0, or -errno: then the program is to run without this library. Until 0 is certain, calls that
 * arrive are the kernel's. */
EXPORT long ds_free_start(const unsigned long *stack, int end, int threads, uint32_t open, uintptr_t go);
long ds_free_start(const unsigned long *stack, int end, int threads, uint32_t open, uintptr_t go)
{
	enum { FSGSBASE = 1 << 1 }; /* of AT_HWCAP2: the FS and GS base may be read and written */

	libc_begin(stack, go);
	long rc = slot_begin(getauxval(AT_HWCAP2) & FSGSBASE);

	if (rc < 0)
		return rc;
	if (!slot_find())
		return -ENOMEM;
	if (threads > 1)
		slot_threads();
	inherited_numbers = open;
	construct();
	if (end > 0)
		adopt(end);
	ds_free_called = go;
	slot_begun(go);
	__atomic_store_n(&ds_free_calls, DS_WAYS, __ATOMIC_RELEASE);
	return 0;
}

/* For the constructor of hooks/proc.c. */
void signals_init(void) {}
/* The program may make children that share its memory in places that do not come here. */
void vfork_init(void) { fd_doubt(); }
