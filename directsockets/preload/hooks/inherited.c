/* A program with a connection executes another, as inetd and sshd do. The word for the new program
 * in its environment
 *
 *   EXNET_DS_INHERITED=<process>:<side>-<cookie>,...
 *
 * names the connections that it may continue with. It states a fact that a program cannot find out
 * by itself: that no other process has the connection. It is written only for a program that will
 * have this library. */
#include "hooks/inherited.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define WORD "EXNET_DS_INHERITED="

enum { PARENT = 100 }; /* ms that a parent is given to close its copy */

/* ---- will the program have this library? -------------------------------------------- */

/* The value of name in envp, or NULL. */
static const char *value(char *const envp[], const char *name)
{
	size_t n = strlen(name);

	for (; envp && *envp; envp++)
		if (!strncmp(*envp, name, n) && (*envp)[n] == '=')
			return *envp + n + 1;
	return NULL;
}

bool own_entry(const char *entry, size_t n)
{
	static const char token[] = "$LIB";
	const char *own = ds_own_path(), *at = memmem(entry, n, token, sizeof token - 1);
	size_t size = own ? strlen(own) : 0;

	if (!own || !at)
		return own && n == size && !memcmp(entry, own, n);
	size_t before = (size_t)(at - entry), after = n - before - (sizeof token - 1);
	return size > before + after && !memcmp(entry, own, before) && !memcmp(at + sizeof token - 1, own + size - after, after);
}

/* Does LD_PRELOAD in envp have this library, by its full name? */
static bool preloaded(char *const envp[])
{
	const char *list = value(envp, "LD_PRELOAD"), *own = ds_own_path();

	if (!list || !own || kernel_access(own, R_OK) < 0)
		return false;
	for (size_t n; *list; list += n) {
		list += strspn(list, " :");
		n = strcspn(list, " :");
		if (own_entry(list, n))
			return true;
	}
	return false;
}

/* Is fd an executable file of this machine with glibc's dynamic linker, whose name follows its
 * headers? */
static bool dynamic(int fd, const ElfW(Ehdr) *e)
{
	ElfW(Phdr) p;
	char linker[256] = "";

	if (memcmp(e->e_ident, ELFMAG, SELFMAG) || e->e_ident[EI_CLASS] != (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) ||
	    e->e_machine != MACHINE || e->e_phentsize != sizeof p)
		return false;
	for (int i = 0; i < e->e_phnum; i++) {
		if (kernel_pread(fd, &p, sizeof p, (off_t)(e->e_phoff + (size_t)i * sizeof p)) != sizeof p)
			return false;
		if (p.p_type == PT_INTERP)
			return p.p_filesz < sizeof linker && kernel_pread(fd, linker, p.p_filesz, (off_t)p.p_offset) == (ssize_t)p.p_filesz &&
			       strstr(linker, "/ld-linux") != NULL;
	}
	return false;
}

/* Will the dynamic linker load what LD_PRELOAD says for the program at path? Of a script its
 * interpreter counts. */
static bool loads(const char *path)
{
	union {
		ElfW(Ehdr) elf;
		char text[256];
	} head;
	char name[256];

	for (int depth = 0; depth < 4; depth++) {
		struct stat st;
		int fd = (int)ds_syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			return false;
		memset(&head, 0, sizeof head);
		/* A program that runs with other rights is not given the library. */
		bool fine = kernel_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && !(st.st_mode & (S_ISUID | S_ISGID)) &&
			    ds_syscall(SYS_fgetxattr, fd, "security.capability", NULL, 0) < 0 && kernel_pread(fd, &head, sizeof head - 1, 0) > 0;
		bool script = fine && head.text[0] == '#' && head.text[1] == '!';
		fine = fine && (script || dynamic(fd, &head.elf));
		ds_syscall(SYS_close, fd);
		if (!script)
			return fine;
		size_t from = 2 + strspn(head.text + 2, " \t"), n = strcspn(head.text + from, " \t\n");
		memcpy(name, head.text + from, n);
		name[n] = 0;
		path = name;
	}
	return false;
}

bool of_program(const char *file, bool search, bool (*is)(const char *path))
{
	const char *dirs = getenv("PATH");
	char path[PATH_MAX];

	if (!search || strchr(file, '/'))
		return is(file);
	for (size_t n; dirs && *dirs; dirs += n + (dirs[n] == ':')) {
		n = strcspn(dirs, ":");
		if (n == 0 || n + strlen(file) + 2 > sizeof path)
			return false;
		memcpy(path, dirs, n);
		path[n] = '/';
		strcpy(path + n + 1, file);
		if (kernel_access(path, X_OK) == 0)
			return is(path);
	}
	return false;
}

/* ---- the program that executes -------------------------------------------------------- */

void inherit_begin(struct inheritance *h, const char *file, bool search, char *const envp[])
{
	h->file = file;
	h->search = search;
	h->envp = envp;
	h->reaches = 0;
	h->n = 0;
}

/* True if only this process has c, and ds_may_inherit allows it. Waits a moment for others to close
 * a standard stream. */
static bool alone(struct conn *c, int fd, int *side)
{
	const struct timespec ms = {0, 1000000};

	for (int i = 0; i < PARENT && fd <= STDERR_FILENO && !ds_plain(c->life.s) && ds_leaves(c->life.s); i++)
		ds_syscall(SYS_nanosleep, &ms, NULL);
	return ds_may_inherit(c->life.s, side);
}

bool inherit_add(struct conn *c, int fd, uint64_t cookie, struct inheritance *h)
{
	int side;

	if (fd_vforked() || !h->file || !ds_one_thread()) /* another thread may fork meanwhile */
		return false;
	if (!h->reaches)
		h->reaches = preloaded(h->envp) && of_program(h->file, h->search, loads) ? 1 : 2;
	if (h->reaches != 1 || !alone(c, fd, &side))
		return false;
	for (int i = 0; i < h->n; i++)
		if (h->cookie[i] == cookie)
			return true;
	if (h->n == INHERITED)
		return false;
	h->cookie[h->n] = cookie;
	h->side[h->n++] = (uint8_t)side;
	return true;
}

size_t inherit_room(char *const envp[])
{
	size_t n = 0;

	while (envp && envp[n])
		n++;
	return n + 2;
}

/* Writes v in hexadecimal, and then end, to at; returns the place after that. */
static char *number(char *at, uint64_t v, char end)
{
	int digits = 1;

	for (uint64_t rest = v; rest >>= 4;)
		digits++;
	for (int i = digits; i-- > 0; v >>= 4)
		at[i] = "0123456789abcdef"[v & 15];
	at[digits] = end;
	return at + digits + 1;
}

void inherit_tell(struct inheritance *h, char *const envp[], char *with[])
{
	char *at = h->text;

	memcpy(at, WORD, sizeof WORD - 1);
	at = number(at + sizeof WORD - 1, (uint64_t)kernel_getpid(), ':');
	for (int i = 0; i < h->n; i++)
		at = number(number(at, h->side[i], '-'), h->cookie[i], ',');
	*at = 0;
	*with++ = h->text;
	for (; envp && *envp; envp++)
		if (strncmp(*envp, WORD, sizeof WORD - 1))
			*with++ = *envp;
	*with = NULL;
}

/* ---- the new program -------------------------------------------------------------------- */

/* Takes the word out of the environment: its value, or NULL. The text stays in place. */
static char *take_word(void)
{
	char *said = NULL;

	if (!environ)
		return NULL;
	for (char **from = environ, **to = environ;; from++) {
		if (*from && !strncmp(*from, WORD, sizeof WORD - 1))
			said = *from + sizeof WORD - 1;
		else if (!(*to++ = *from))
			return said;
	}
}

struct legacy {
	uint64_t cookie;
	int side;
	struct conn *c; /* made for the first of its descriptors */
};

/* Reads the connections that text names for this process: how many. */
static int read_word(char *text, struct legacy w[INHERITED])
{
	int n = 0;

	if (strtoull(text, &text, 16) != (uint64_t)kernel_getpid() || *text != ':')
		return 0;
	while (n < INHERITED && text[1]) {
		w[n].side = (int)strtoul(text + 1, &text, 16);
		if (*text != '-' || w[n].side > 1)
			return n;
		w[n].cookie = strtoull(text + 1, &text, 16);
		if (*text != ',')
			return n;
		w[n++].c = NULL;
	}
	return n;
}

/* Takes fd over if it is one of the n connections of w. */
static void take(int fd, struct legacy *w, int n)
{
	uint64_t cookie = fd_cookie(fd);

	if (!cookie)
		return;
	for (int i = 0; i < n; i++) {
		if (w[i].cookie != cookie)
			continue;
		if (w[i].c)
			fd_set_conn(fd, w[i].c);
		else
			w[i].c = conn_inherited(fd, w[i].side);
	}
}

DS_START void inherit_take(void)
{
	struct legacy w[INHERITED];
	char buf[2048], *text = take_word();
	int n = text ? read_word(text, w) : 0;
	int dir = n ? kernel_open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (dir < 0)
		return;
	for (long got; (got = ds_syscall(SYS_getdents64, dir, buf, sizeof buf)) > 0;)
		for (long off = 0; off < got;) {
			struct dirent64 *d = (struct dirent64 *)(void *)(buf + off);

			off += d->d_reclen;
			if (d->d_name[0] != '.')
				take(atoi(d->d_name), w, n);
		}
	REAL(close, dir);
}
