/* With musl, no instruction of an object is replaced. The objects are looked at all the same: the
 * program and its small libraries before it runs, others when they are opened. If one of them makes
 * system calls by its own instructions, all sockets stay the kernel's, as those calls may be a
 * socket's, whose bytes would pass those in memory. musl itself and this library are known. */
#include "hooks/made.h"

#if !defined(__GLIBC__) && !defined(DS_FREE)
#include <errno.h>
#include <link.h>
#include <sys/auxv.h>

enum {
	PROGRAM_MOST = 256 << 20, /* bytes of code: of the program, or of what is opened */
	LIBRARY_MOST = 128 << 10, /* of a library that the program is linked with */
};

static unsigned seen; /* of all objects, which are in the order in which they came and stay */

struct look {
	unsigned object;
	bool opened;
};

/* Has the object of i the address? */
static bool has(const struct dl_phdr_info *i, uintptr_t address)
{
	for (const ElfW(Phdr) *p = i->dlpi_phdr; p < i->dlpi_phdr + i->dlpi_phnum; p++)
		if (p->p_type == PT_LOAD && address - (i->dlpi_addr + p->p_vaddr) < p->p_memsz)
			return true;
	return false;
}

/* For dl_iterate_phdr: looks at an object. */
static int look_at(struct dl_phdr_info *i, size_t size, void *arg)
{
	struct look *l = arg;
	const unsigned object = l->object++;
	const ptrdiff_t most = l->opened || object == 0 ? PROGRAM_MOST : LIBRARY_MOST;

	(void)size;
	if (object < seen)
		return 0;
	seen = object + 1;
	if (fd_is_sealed() || has(i, (uintptr_t)getauxval) || has(i, (uintptr_t)look_at) || has(i, getauxval(AT_SYSINFO_EHDR)))
		return 0;
	for (const ElfW(Phdr) *p = i->dlpi_phdr; p < i->dlpi_phdr + i->dlpi_phnum; p++) {
		const unsigned char *at = (const unsigned char *)i->dlpi_addr + p->p_vaddr, *call;

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_X) || (ptrdiff_t)p->p_filesz > most)
			continue;
		if ((call = code_call(at, at + p->p_filesz)))
			code_stay(object == 0 ? "" : i->dlpi_name, (uintptr_t)call - i->dlpi_addr);
	}
	return 0;
}

__attribute__((constructor)) DS_START static void look_at_all(void)
{
	if (!ds_env_off("EXNET_PATCH"))
		dl_iterate_phdr(look_at, &(struct look){0, false});
}

typedef void *open_fn(const char *file, int mode);

/* Where it is called from does not matter to musl. */
EXPORT void *dlopen(const char *file, int mode)
{
	static open_fn *real;
	int saved;

	if (!real)
		real = (open_fn *)(uintptr_t)ds_next("dlopen");
	void *handle = real(file, mode);
	saved = errno;
	if (handle && seen)
		dl_iterate_phdr(look_at, &(struct look){0, true});
	errno = saved;
	return handle;
}
#endif
