/* How the library begins, without a dynamic linker: who maps it has applied its relocations. */
#include "free/slot.h"
#include "hooks/hooks.h"

#include <elf.h>
#include <errno.h>
#include <sys/auxv.h>

EXPORT const uint32_t ds_free_version = 1;

extern const Elf64_Ehdr __ehdr_start DS_HIDDEN;
extern const Elf64_Dyn _DYNAMIC[] DS_HIDDEN;
void libc_begin(const unsigned long *stack) DS_HIDDEN;

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

/* Called once, in the first thread, before the program's first instruction, with the stack pointer
 * that the kernel gave it. 0, or -errno: the program is to run without this library. */
EXPORT long ds_free_start(const unsigned long *stack);
long ds_free_start(const unsigned long *stack)
{
	enum { FSGSBASE = 1 << 1 }; /* of AT_HWCAP2: the FS and GS base may be read and written */

	libc_begin(stack);
	if (!(getauxval(AT_HWCAP2) & FSGSBASE))
		return -ENOSYS;
	if (!slot_find())
		return -ENOMEM;
	construct();
	return 0;
}

/* For the constructor of hooks/proc.c. */
void signals_init(void) {}
/* The program may make children that share its memory in places that do not come here. */
void vfork_init(void) { fd_doubt(); }
