/* Static programs that a program starts: the dynamic linker loads no library into them. exn-run,
 * which the environment names, becomes the program and has it get one. */
#include "hooks/launch.h"
#include "hooks/inherited.h"
#include "hooks/hooks.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Is it a program without a dynamic linker, that anyone starts with the rights he has? */
static bool is_static(const char *path)
{
	_Alignas(16) char piece[1024];
	const Elf64_Ehdr *e = (const void *)piece;
	bool runs = false;
	struct stat st;

	/* Nothing else is opened, as that may wait, or do something. */
	if (kernel_stat(path, &st) < 0 || !S_ISREG(st.st_mode) || (st.st_mode & (S_ISUID | S_ISGID)) || kernel_access(path, X_OK) != 0)
		return false;
	int fd = (int)ds_syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return false;
	long n = ds_syscall(SYS_pread64, fd, piece, sizeof piece, 0);
	ds_syscall(SYS_close, fd);
	if (n < (long)sizeof *e || memcmp(e->e_ident, ELFMAG, SELFMAG) || e->e_ident[EI_CLASS] != ELFCLASS64 || e->e_machine != MACHINE ||
	    e->e_phentsize != sizeof(Elf64_Phdr) || e->e_phoff != sizeof *e || sizeof *e + e->e_phnum * sizeof(Elf64_Phdr) > (size_t)n)
		return false;
	for (const Elf64_Phdr *h = (const void *)(e + 1), *end = h + e->e_phnum; h < end; h++)
		if (h->p_type == PT_INTERP)
			return false;
		else
			runs |= h->p_type == PT_LOAD && (h->p_flags & PF_X);
	return runs;
}

/* The value of a variable of envp; NULL: it has none. */
static const char *value(char *const envp[], const char *name)
{
	size_t n = strlen(name);

	for (; envp && *envp; envp++)
		if (!strncmp(*envp, name, n) && (*envp)[n] == '=')
			return *envp + n + 1;
	return NULL;
}

const char *launcher_of(const char *file, bool search, char *const argv[], char *const envp[])
{
	const char *launcher = value(envp, "EXNET_LAUNCHER"), *path = value(envp, "PATH"), *mine = getenv("PATH");
	int saved = errno;

	if (!launcher || launcher[0] != '/' || !file || !argv || !argv[0])
		return NULL;
	/* There the launcher would find itself, or nothing. */
	if (!strncmp(file, "/proc/", 6) || !strncmp(file, "/dev/", 5))
		return NULL;
	/* The launcher has the program's variables, and may find another file by them. */
	if (search && !strchr(file, '/') && (!path || !mine || strcmp(path, mine)))
		return NULL;
	bool so = of_program(file, search, is_static) && kernel_access(launcher, X_OK) == 0;
	errno = saved;
	return so ? launcher : NULL;
}

size_t launch_room(char *const argv[])
{
	size_t n = 0;

	while (argv[n])
		n++;
	return n + LAUNCH_WORDS + 1;
}

void launch_args(const char *file, char *const argv[], char *args[])
{
	/* exn-run's command and its words: the library ("": exn-run finds it), the format of
	 * messages (q: none), the program's name in them, and its file. */
	char *const words[LAUNCH_WORDS] = {"exn-run", "--become", "", "q", (char *)(uintptr_t)file, (char *)(uintptr_t)file};

	memcpy(args, words, sizeof words);
	args += LAUNCH_WORDS;
	while ((*args++ = *argv++))
		;
}
