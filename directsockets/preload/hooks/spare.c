/* Programs that have no use for this library: most of those that a shell script starts. To load it
 * takes them a fifth of the time in which they do their work and end. So a program is started
 * without it if it can be seen that it makes no socket and accepts none, loads no other code and
 * starts no program: from the names in the dynamic section of its file. Whatever is not plain has
 * the library. */
#include "hooks/inherited.h"
#include "hooks/hooks.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define PRELOAD "LD_PRELOAD="

#ifdef __GLIBC__

enum { PIECE = 1024, LOADS = 8, NEEDS = 8 };

/* By these a program comes to a socket, to other code, or to another program. */
static const char reaching[][16] = {
	"_Fork", "accept", "accept4", "cap_launch", "clone", "clone3", "connect", "dlmopen", "dlopen", "dlsym", "dlvsym", "execl",
	"execle", "execlp", "execv", "execve", "execveat", "execvp", "execvpe", "fork", "forkpty", "listen", "pidfd_getfd",
	"pidfd_spawn", "pidfd_spawnp", "popen", "posix_spawn", "posix_spawnp", "pthread_create", "recvmmsg", "recvmsg",
	"rpm_execcon", "socket", "syscall", "system", "wordexp",
	/* The environment as a whole: what shows or keeps it shall find all of it. */
	"environ",
};

/* These libraries do none of it in their caller's stead, but for the C library. */
static const char harmless[][24] = {
	"libacl.so.1", "libattr.so.1", "libbz2.so.1.0", "libc.so.6", "libcap.so.2", "libgmp.so.10", "liblzma.so.5", "libm.so.6",
	"libpcre2-8.so.0", "libselinux.so.1", "libtinfo.so.6", "libz.so.1",
};

/* What is read of a program's file, in pieces: exec is called on small stacks, too. */
struct program {
	int fd, nloads, nneeds, found;
	bool interpreted, libc;
	uint64_t dynamic, dynamic_size, names, names_size;
	struct {
		uint64_t address, offset, size;
	} load[LOADS];
	uint64_t needs[NEEDS]; /* in the names */
	_Alignas(16) char piece[PIECE];
};

/* Reads a piece, at least size bytes of it. */
static bool piece(struct program *p, uint64_t offset, uint64_t size)
{
	return size <= PIECE && ds_syscall(SYS_pread64, p->fd, p->piece, PIECE, offset) >= (long)size;
}

/* Reads the headers. */
static bool headers(struct program *p)
{
	const ElfW(Ehdr) *e = (const void *)p->piece;

	if (!piece(p, 0, sizeof *e) || memcmp(e->e_ident, ELFMAG, SELFMAG) || e->e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) ||
	    e->e_machine != MACHINE || e->e_phentsize != sizeof(ElfW(Phdr)) || e->e_phoff != sizeof *e ||
	    sizeof *e + e->e_phnum * sizeof(ElfW(Phdr)) > PIECE)
		return false;
	for (const ElfW(Phdr) *h = (const void *)(e + 1), *end = h + e->e_phnum; h < end; h++)
		switch (h->p_type) {
		case PT_INTERP:
			p->interpreted = h->p_offset < PIECE && h->p_filesz <= PIECE - h->p_offset && h->p_filesz > 0 &&
					 !p->piece[h->p_offset + h->p_filesz - 1] && strstr(p->piece + h->p_offset, "/ld-linux");
			break;
		case PT_DYNAMIC:
			p->dynamic = h->p_offset;
			p->dynamic_size = h->p_filesz;
			break;
		case PT_LOAD:
			if (p->nloads == LOADS)
				return false;
			p->load[p->nloads].address = h->p_vaddr;
			p->load[p->nloads].offset = h->p_offset;
			p->load[p->nloads++].size = h->p_filesz;
		}
	return p->interpreted && p->dynamic_size;
}

/* Reads the dynamic section. False, too, if that has the linker load what is not named there. */
static bool dynamic_section(struct program *p)
{
	uint64_t at = 0;

	if (!piece(p, p->dynamic, p->dynamic_size))
		return false;
	for (const ElfW(Dyn) *d = (const void *)p->piece, *end = d + p->dynamic_size / sizeof *d; d < end && d->d_tag != DT_NULL; d++)
		switch (d->d_tag) {
		case DT_NEEDED:
			if (p->nneeds == NEEDS)
				return false;
			p->needs[p->nneeds++] = d->d_un.d_val;
			break;
		case DT_STRTAB: at = d->d_un.d_ptr; break;
		case DT_STRSZ: p->names_size = d->d_un.d_val; break;
		case DT_RPATH:
		case DT_RUNPATH:
		case DT_AUDIT:
		case DT_DEPAUDIT:
		case DT_AUXILIARY:
		case DT_FILTER: return false;
		}
	for (int i = 0; i < p->nloads; i++)
		if (at >= p->load[i].address && at - p->load[i].address < p->load[i].size) {
			p->names = at - p->load[i].address + p->load[i].offset;
			return true;
		}
	return false;
}

/* Is the name of n characters, that stands at this place among the names, or one that it ends with,
 * none that the program reaches anything by? The linker keeps one name in another's end. */
static bool name_harmless(struct program *p, const char *name, size_t n, uint64_t at)
{
	for (size_t i = 0; i < sizeof reaching / sizeof *reaching; i++) {
		size_t len = strlen(reaching[i]);

		if (len <= n && !memcmp(name + n - len, reaching[i], len))
			return false;
	}
	for (int i = 0; i < p->nneeds; i++) {
		if (p->needs[i] != at)
			continue;
		size_t k = 0;
		while (k < sizeof harmless / sizeof *harmless && strcmp(name, harmless[k]))
			k++;
		if (k == sizeof harmless / sizeof *harmless)
			return false;
		p->found++;
		p->libc = p->libc || !strcmp(name, "libc.so.6");
	}
	return true;
}

/* Are all names harmless, and each needed library among them? */
static bool names_harmless(struct program *p)
{
	enum { MOST = 16 * PIECE };

	if (p->names_size > MOST)
		return false;
	for (uint64_t at = 0; at < p->names_size;) {
		uint64_t left = p->names_size - at, size = left < PIECE ? left : PIECE, next = 0;

		if (!piece(p, p->names + at, size))
			return false;
		for (const char *nul; (nul = memchr(p->piece + next, 0, size - next)); next = (uint64_t)(nul - p->piece) + 1)
			if (!name_harmless(p, p->piece + next, (size_t)(nul - p->piece) - next, at + next))
				return false;
		if (next == 0)
			return false; /* a name without an end */
		at += next;
	}
	return p->libc && p->found == p->nneeds;
}

/* Has the program at path no use for this library? */
static bool useless(const char *path)
{
	struct program p;
	struct stat st;

	/* Nothing else is opened, as that may wait, or do something. */
	if (kernel_stat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	memset(&p, 0, offsetof(struct program, piece));
	p.fd = (int)ds_syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (p.fd < 0)
		return false;
	bool harms_not = headers(&p) && dynamic_section(&p) && names_harmless(&p);
	ds_syscall(SYS_close, p.fd);
	return harms_not;
}

/* Is this library the only one that envp has the dynamic linker load, and from where it was loaded
 * here? Is everything else as usual? */
static bool only_this(char *const envp[])
{
	enum { MOST = 512 };
	bool only = false;

	for (int i = 0; envp && envp[i]; i++) {
		if (i == MOST)
			return false;
		if (envp[i][0] != 'L' || envp[i][1] != 'D' || envp[i][2] != '_')
			continue;
		const char *list = envp[i] + sizeof PRELOAD - 1;
		if (only || strncmp(envp[i], PRELOAD, sizeof PRELOAD - 1) || !own_entry(list, strlen(list)))
			return false;
		only = true;
	}
	return only;
}

bool spared(const char *file, bool search, char *const envp[])
{
	int saved = errno;

	/* It must not inherit anything of ours. */
	bool so = fd_is_sealed() ? only_this(envp) : !fd_tab_size && file && only_this(envp) && of_program(file, search, useless);
	errno = saved;
	return so;
}
#else
bool spared(const char *file, bool search, char *const envp[])
{
	(void)file;
	(void)search;
	(void)envp;
	return false;
}
#endif

void spared_env(char *const envp[], char *with[])
{
	for (; *envp; envp++)
		if (strncmp(*envp, PRELOAD, sizeof PRELOAD - 1))
			*with++ = *envp;
	*with = NULL;
}
