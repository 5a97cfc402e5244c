/* The limits of control groups, of both versions (the kernel's Documentation/admin-guide:
 * cgroup-v2.rst, cgroup-v1/memory.rst). A group counts what its own groups use, so each group from
 * the process's own up to the first that can be seen is looked at.
 *
 *   ds_memory_room ── looked a moment ago ──▶ takes n of what was left
 *        └─ else look ─▶ /proc/self/cgroup ─▶ of each group: limit, anonymous and shared memory
 *
 * Only one thread looks; the others take of what was left before. No lock, no stack for the files.
 */
#include "segment/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

/* In ticks, about 10 ms and 1 s: how long a look holds with a limit, and without one. A thread that
 * looks for longer than that is not here any more: this is a child of fork. */
static const uint64_t LIMITED = 1ull << 25, UNLIMITED = 1ull << 31;

const char *ds_cgroup_self = "/proc/self/cgroup", *ds_cgroup_root = "/sys/fs/cgroup";

static uint64_t left = UINT64_MAX; /* bytes; UINT64_MAX: there is no limit */
static uint64_t until;		   /* when it has to be looked at again, by ds_ticks */
static uint64_t looks;		   /* since when a thread looks; 0: none does */

/* Of the thread that looks. */
static char text[4096], path[512];

void ds_memory_look(void) { __atomic_store_n(&until, 0, __ATOMIC_RELAXED); }

/* Reads the file into text. False: there is none. */
static bool read_file(const char *name)
{
	long n, fd = ds_syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	n = ds_syscall(SYS_read, fd, text, sizeof text - 1);
	ds_syscall(SYS_close, fd);
	text[n > 0 ? n : 0] = 0;
	return n > 0;
}

/* Reads the file `name` of the group of path, whose length is n, into text. */
static bool read_of_group(size_t n, const char *name)
{
	size_t len = strlen(name);

	if (n + len >= sizeof path)
		return false;
	memcpy(path + n, name, len + 1);
	bool read = read_file(path);
	path[n] = 0;
	return read;
}

/* The number at s; UINT64_MAX: there is none ("max"). */
static uint64_t number(const char *s)
{
	uint64_t v = 0;

	if (*s < '0' || *s > '9')
		return UINT64_MAX;
	for (; *s >= '0' && *s <= '9'; s++)
		v = v * 10 + (uint64_t)(*s - '0');
	return v;
}

/* The number of the line of text that begins with key and a space; 0: there is no such line. */
static uint64_t value_of(const char *key)
{
	size_t n = strlen(key);

	for (const char *s = text; s && *s; s = strchr(s, '\n'), s = s ? s + 1 : NULL)
		if (!strncmp(s, key, n) && s[n] == ' ')
			return number(s + n + 1);
	return 0;
}

/* Sets path to the process's group of the version that has memory: its length, and whether that is
 * version 1. 0: there is none. */
static size_t find_group(bool *first)
{
	const char *at = NULL, *root = ds_cgroup_root, *sub = "";
	size_t n = strlen(root), m, len;

	if (!read_file(ds_cgroup_self))
		return 0;
	for (const char *s = text; s && *s; s = strchr(s, '\n'), s = s ? s + 1 : NULL) {
		const char *names = strchr(s, ':'), *group = names ? strchr(names + 1, ':') : NULL;

		if (!group)
			break;
		const char *memory = strstr(names, "memory");
		bool has = memory && memory < group;
		if (!has && (at || group != names + 1))
			continue;
		at = group + 1;
		*first = has;
		sub = has ? "/memory" : "";
	}
	if (!at)
		return 0;
	m = strlen(sub);
	len = strcspn(at, "\n");
	if (n + m + len >= sizeof path)
		len = 0;
	memcpy(path, root, n);
	memcpy(path + n, sub, m);
	memcpy(path + n + m, at, len);
	path[n + m + len] = 0;
	return n + m + len;
}

/* What the groups leave: of each, half of its limit less what is in use. */
static uint64_t look(void)
{
	bool first = false;
	uint64_t least = UINT64_MAX;
	size_t n = find_group(&first), root = strlen(ds_cgroup_root);

	while (n >= root && n) {
		uint64_t limit = read_of_group(n, first ? "/memory.limit_in_bytes" : "/memory.max") ? number(text) : UINT64_MAX, used = 0;

		if (limit < UINT64_MAX >> 4) { /* version 1 says so of no limit */
			if (read_of_group(n, "/memory.stat"))
				used = first ? value_of("total_rss") + value_of("total_shmem") : value_of("anon") + value_of("shmem");
			uint64_t rest = limit / 2 > used ? limit / 2 - used : 0;
			least = rest < least ? rest : least;
		}
		while (n > root && path[n - 1] != '/')
			n--;
		if (n == root)
			break;
		path[--n] = 0;
	}
	return least;
}

bool ds_memory_room(uint64_t n)
{
	uint64_t now = ds_ticks(), since = __atomic_load_n(&looks, __ATOMIC_RELAXED), rest;
	int saved = errno;

	if ((int64_t)(now - __atomic_load_n(&until, __ATOMIC_RELAXED)) >= 0 && (!since || now - since > UNLIMITED) &&
	    __atomic_compare_exchange_n(&looks, &since, now | 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		rest = look();
		__atomic_store_n(&left, rest, __ATOMIC_RELAXED);
		__atomic_store_n(&until, now + (rest == UINT64_MAX ? UNLIMITED : LIMITED), __ATOMIC_RELAXED);
		__atomic_store_n(&looks, 0, __ATOMIC_RELEASE);
		errno = saved;
	}
	rest = __atomic_load_n(&left, __ATOMIC_RELAXED);
	do {
		if (rest == UINT64_MAX || rest < n)
			return rest == UINT64_MAX;
	} while (!__atomic_compare_exchange_n(&left, &rest, rest - n, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return true;
}
