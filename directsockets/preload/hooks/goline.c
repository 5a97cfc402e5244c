/* Where a goroutine of package net waits: pollDesc.wait of internal/poll calls the runtime, which
 * parks the goroutine. The table of Go's lines (runtime/symtab.go: pcHeader, functab, _func) says
 * where the functions are; a stripped program has it, too. inject's linetable.go reads it for
 * programs without cgo. Here it is in memory, and addresses are counted from Syscall6: in a program
 * of two linkers its text is not the object's. */
#include "hooks/patch.h"

#ifdef DS_PATCH
#include "hooks/go.h"
#include "hooks/instruction.h"

#include <stddef.h>
#include <string.h>

/* The table's head, since Go 1.20. Offsets are counted from it. */
struct line_table {
	uint64_t magic, count, files, text;
	uint64_t names, names_end, file_names, values, functions;
};

/* An element of the list of functions, whose last has an end alone. */
struct line_function {
	uint32_t begin, about; /* counted from the text, and from the list */
};

enum { TABLE_ALIGN = 8, MOST_FUNCTIONS = 1 << 24, MOST_CALLING = 4096 };

/* Finds the table in data; NULL: it is not there, or has another form. */
static const struct line_table *line_table(const char *begin, const char *end)
{
	static const unsigned char magic[] = {0xf1, 0xff, 0xff, 0xff, 0, 0, 1, sizeof(void *)};
	const char *p = begin + (-(uintptr_t)begin & (TABLE_ALIGN - 1));

	for (; end - p >= (ptrdiff_t)sizeof(struct line_table); p += TABLE_ALIGN) {
		const struct line_table *t = (const void *)p;
		uint64_t size = (uint64_t)(end - p);

		if (memcmp(p, magic, sizeof magic) == 0 && t->count > 0 && t->count < MOST_FUNCTIONS && t->names < t->names_end && t->names_end <= size &&
		    t->functions <= size && (t->count + 1) * sizeof(struct line_function) <= size - t->functions)
			return t;
	}
	return NULL;
}

/* The offset of a name among all; 0: it is not there. */
static uint32_t name_of(const struct line_table *t, const char *name)
{
	const char *names = (const char *)t + t->names, *end = (const char *)t + t->names_end;
	size_t n = strlen(name) + 1;

	for (const char *p = names; (p = memchr(p, 0, (size_t)(end - p))) && (size_t)(end - ++p) >= n;)
		if (memcmp(p, name, n) == 0)
			return (uint32_t)(p - names);
	return 0;
}

/* Where a function begins and ends, from the text. */
struct extent {
	uint32_t begin, end;
};

/* Finds the functions of n names; false: one is not there. */
static bool functions_of(const struct line_table *t, const char *end, const uint32_t *names, struct extent *found, unsigned n)
{
	const char *list = (const char *)t + t->functions;
	const struct line_function *f = (const void *)list;
	unsigned left = n;

	for (uint64_t i = 0; i < t->count && left > 0; i++) {
		uint32_t about[2]; /* where it begins, and its name */

		if (f[i].about > (size_t)(end - list) - sizeof about)
			return false;
		memcpy(about, list + f[i].about, sizeof about);
		for (unsigned k = 0; k < n; k++)
			if (about[1] == names[k]) {
				found[k] = (struct extent){f[i].begin, f[i + 1].begin};
				left--;
			}
	}
	return left == 0;
}

/* As inject's callSite: the one call of to in a function that begins with cmp 16(%r14), %rsp, the
 * word which the entry writes to. */
static const unsigned char *call_in(const unsigned char *begin, const unsigned char *end, const unsigned char *to)
{
	static const unsigned char check[] = {0x49, 0x3b, 0x66, 0x10};
	const unsigned char *found = NULL;
	int32_t distance;

	if (end - begin < (ptrdiff_t)sizeof check || end - begin > MOST_CALLING || memcmp(begin, check, sizeof check) != 0)
		return NULL;
	for (const unsigned char *p = begin; end - p >= JUMP; p++) {
		memcpy(&distance, p + 1, sizeof distance);
		if (*p != CALL_CODE || to - p - JUMP != distance)
			continue;
		if (found)
			return NULL;
		found = p;
	}
	return found;
}

const unsigned char *go_wait(const struct ds_text *text, const unsigned char *syscall6, const char *begin, const char *end, const unsigned char **calls)
{
	enum { WAIT, CALLED, SYSCALL6, FUNCTIONS };
	static const char *const wanted[] = {"internal/poll.(*pollDesc).wait", "internal/poll.runtime_pollWait", "internal/runtime/syscall.Syscall6"};
	static const char later[] = "internal/runtime/syscall/linux.Syscall6"; /* since Go 1.26 */
	const struct line_table *t = line_table(begin, end);
	uint32_t names[FUNCTIONS];
	struct extent at[FUNCTIONS];

	for (int i = 0; t && i < FUNCTIONS; i++)
		names[i] = name_of(t, wanted[i]);
	if (!t || !names[WAIT] || !names[CALLED] || (!names[SYSCALL6] && !(names[SYSCALL6] = name_of(t, later))) || !functions_of(t, end, names, at, FUNCTIONS))
		return NULL;
	const unsigned char *from = syscall6 - at[SYSCALL6].begin, *low = (const unsigned char *)text->begin, *high = (const unsigned char *)text->end;
	if (from < low || at[WAIT].begin > at[WAIT].end || at[WAIT].end > (size_t)(high - from) || at[CALLED].begin > (size_t)(high - from))
		return NULL;
	*calls = from + at[CALLED].begin;
	return call_in(from + at[WAIT].begin, from + at[WAIT].end, *calls);
}
#endif
