/* System calls that the program and its libraries make by instructions of their own, not by the C
 * library: of inline assembly, of liburing, of a static part. As in a static program (inject), a
 * jump takes the place of each (calls.c), and leads to a stub near the object that has it:
 *
 *   object      ... mov $nr, %eax ─ jump ─┐                              ┌─▶ next instruction
 *   stub        what was moved from before└▶ lea, lea, jump ─┐  ┌─▶ lea, what was moved from behind
 *   ds_own_entry                                             └▶─┤ ours: the hook
 *   stub                                                        └ not ours: syscall ─▶ what was moved
 *
 * Of Go, which has cgo then, two places are replaced: its one function that makes system calls
 * (go.c), and the call by which a goroutine waits (goline.c). */
#include "hooks/go.h"
#include "hooks/instruction.h"
#include "hooks/sites.h"

#ifdef DS_PATCH
#include <link.h>
#include <string.h>
#include <sys/mman.h>

enum {
	PAGE = 4096,
	OWN_STUB = 128,
	NEAREST = 64 << 10, FARTHEST = 1 << 30, /* of the stubs, from their object */
	LOWEST = 64 << 10,			/* address that a process may have: vm.mmap_min_addr as it usually is */
};

/* Writes the stub of s to b, where it is to run. False: it cannot be there. ds_own_entry knows what
 * is before the place where it comes back to. */
static bool put_stub(const struct site *s, unsigned char *b)
{
	enum { HEAD = 52 };
	static const unsigned char head[HEAD] = {
		0x48, 0x8d, 0x64, 0x24, 0x80,	      /* lea -128(%rsp), %rsp */
		0x4c, 0x8d, 0x1d, 32, 0, 0, 0,	      /* lea back(%rip), %r11 */
		0xff, 0x25, 6, 0, 0, 0,		      /* jmp *entry(%rip) */
		[40] = 0x0f, 0x05,		      /* syscall */
		0xeb, 8,			      /* jmp behind */
		0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0, /* back: lea 128(%rsp), %rsp */
	};
	static const unsigned char load[] = {0x49, 0xbb};	      /* mov what it calls, %r11 */
	static const unsigned char jump[] = {0xff, 0x25, 0, 0, 0, 0}; /* jmp *entry(%rip) */
	const char *entry = s->call ? ds_own_entry : ds_go_entry;
	const unsigned char *after = s->call + CALL, *p;
	struct instruction in;
	unsigned n;

	if (s->waits) {
		memcpy(b, load, sizeof load);
		memcpy(b + sizeof load, &s->waits, sizeof s->waits);
		b += sizeof load + sizeof s->waits;
		entry = ds_go_poll;
	}
	if (!s->call) {
		memcpy(b, jump, sizeof jump);
		memcpy(b + sizeof jump, &entry, sizeof entry);
		return true;
	}
	for (p = s->begin; p < s->call; p += in.len, b += n) {
		in = instruction_at(p, s->call);
		if (!(n = instruction_move(&in, p, b)))
			return false;
	}
	memcpy(b, head, HEAD);
	memcpy(b + 24, &entry, sizeof entry);
	memcpy(b + 32, &after, sizeof after);
	b += HEAD;
	bool ends = false;
	for (p = after; p < s->end && !ends; p += in.len, b += n) {
		in = instruction_at(p, s->end);
		if (!(n = instruction_move(&in, p, b)))
			return false;
		ends = in.kind == LEADS || in.kind == RETURNS;
	}
	return ends || instruction_jump(b, s->end);
}

/* Memory for n bytes of stubs at an address; NULL: it is not free. */
static unsigned char *map_at(uintptr_t want, size_t n)
{
	long at = ds_kernel_call(SYS_mmap, want, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (at == (long)want)
		return (unsigned char *)at;
	if (at != -1) /* an old kernel's choice */
		ds_kernel_call(SYS_munmap, at, n);
	return NULL;
}

/* Memory for n bytes of stubs that jumps from the text and back can reach; NULL: none is free.
 * Below the text there may be much of its object, and the lowest addresses are free then. */
static unsigned char *map_near(const struct ds_text *text, size_t n)
{
	const uintptr_t low = (uintptr_t)text->begin & ~(uintptr_t)(PAGE - 1);
	unsigned char *at = NULL;

	for (uintptr_t far = NEAREST; far <= FARTHEST && !at && low >= far + n; far *= 2)
		at = map_at(low - far - n, n);
	for (uintptr_t up = LOWEST; low <= FARTHEST && !at && up + n <= low; up *= 2)
		at = map_at(up, n);
	return at;
}

/* Writes the jump that takes the place of s, whose stub can be executed. False: it stays as it
 * was. */
static bool put_jump(const struct patch *change, const struct site *s, const unsigned char *stub)
{
	struct patch p = *change;
	unsigned char *begin = (unsigned char *)(uintptr_t)s->begin, *at = (unsigned char *)(uintptr_t)(s->via ? s->via : s->begin);
	unsigned char *end = at > begin ? at + JUMP : begin + JUMP;

	if (!patch_begin(&p, (char *)begin, (char *)end))
		return false;
	instruction_jump(at, stub);
	if (s->waits)
		*at = CALL_CODE;
	if (s->via) {
		begin[0] = 0xeb;
		begin[1] = (unsigned char)(s->via - s->end);
	}
	return patch_end(&p);
}

/* The stubs of an object follow on the next page, which is never written again. */
struct stubs {
	struct stubs *next;
	const char *base; /* the object's */
	size_t n;
};
static struct stubs *all; /* with the dynamic linker's lock */

void sites_patch(struct sites *l, bool possible)
{
	const size_t n = (PAGE + l->n * OWN_STUB + PAGE - 1) & ~(size_t)(PAGE - 1);
	bool fits[SITES] = {false};
	struct patch change;
	struct stubs *head = NULL;
	unsigned char *stubs = NULL;

	if (possible && patch_open(&change, &l->text) && (head = (void *)map_near(&l->text, n))) {
		*head = (struct stubs){all, l->text.base, n};
		all = head;
		stubs = (unsigned char *)head + PAGE;
		for (unsigned i = 0; i < l->n; i++)
			fits[i] = put_stub(&l->at[i], stubs + i * OWN_STUB);
		if (ds_kernel_call(SYS_mprotect, stubs, n - PAGE, PROT_READ | PROT_EXEC) != 0)
			stubs = NULL;
	}
	for (unsigned i = 0; i < l->n; i++) {
		const struct site *s = &l->at[i];

		if ((!stubs || !fits[i] || !put_jump(&change, s, stubs + i * OWN_STUB)) && s->call)
			calls_missed(l, s->call);
	}
	if (possible)
		patch_close(&change);
}

/* Is there an object at base? */
static bool is_loaded(const char *base)
{
	const struct link_map *m = _r_debug.r_map;

	while (m && (const char *)m->l_addr != base)
		m = m->l_next;
	return m;
}

void sites_sweep(void)
{
	struct stubs *s;

	for (struct stubs **at = &all; (s = *at);) {
		if (is_loaded(s->base)) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		ds_kernel_call(SYS_munmap, s, s->n);
	}
}
#endif
