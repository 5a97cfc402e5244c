/* Go with cgo: the dynamic linker loads this library, but Go makes its system calls itself, by
 * Syscall6. Its threads are the C library's: sites.c leaves Go without cgo as it is. */
#include "hooks/patch.h"

#ifdef DS_PATCH
#include "hooks/go.h"
#include "hooks/owned.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* The thread's stack for Go's calls, and whose it is. */
struct stack {
	struct owned owned;
	struct go_stack go;
};
static struct owned_list stacks;

extern __thread struct go_stack *ds_go_stack __attribute__((tls_model("initial-exec"))) DS_HIDDEN;
__thread struct go_stack *ds_go_stack;

/* A new stack. */
static struct owned *make(void)
{
	char *top = owned_map(sizeof(struct stack));
	struct stack *s = (struct stack *)(void *)top;

	if (!s)
		return NULL;
	s->go.top = top;
	return &s->owned;
}

struct go_stack *ds_go_first(void) DS_HIDDEN;
struct go_stack *ds_go_first(void)
{
	bool fresh;
	struct stack *s = (struct stack *)(void *)owned_get(&stacks, (int)owned_call(SYS_gettid, 0, 0, 0), make, &fresh);

	if (!s)
		return NULL;
	s->go.inside = 0;
	return ds_go_stack = &s->go;
}

/* A system call of Syscall6, on the thread's own stack. What a hook calls is the kernel's. */
struct go_outcome ds_go_made(long nr, const long a[6]) DS_HIDDEN;
struct go_outcome ds_go_made(long nr, const long a[6])
{
	int saved = errno;
	long rc = 0;
	DS_MARK(before);

	/* A child of vfork does not come back, and its parent has the same variables. */
	if (nr == SYS_execve) {
		ds_go_stack->inside = 0;
		ds_unmark(&before);
	}
	bool ours = every_call(nr, a, &rc);
	if (ours && rc == -1)
		rc = -errno;
	errno = saved;
	return (struct go_outcome){ours ? rc : nr, !ours};
}

#define FIND \
	"	movq	ds_go_stack@gottpoff(%rip), %r11\n" \
	"	movq	%fs:(%r11), %r11\n" \
	"	testq	%r11, %r11\n" \
	"	jz	8f\n"
DS_GO_FIRST;
__asm__(
	"	.text\n"
	"	.hidden	ds_own_ways, fd_tab, fd_tab_size, ds_go_stack, go_begin, go_end\n"
	"go_begin:\n"
	DS_GO_ENTRY("ds_go_entry", FIND, "ds_go_made", "ds_go_first")
	DS_GO_POLL("ds_go_poll", "", FIND, "ds_go_yields")
	"go_end:\n");

static uintptr_t called; /* where the kernel returns to in Syscall6 */

static bool where(struct ds_where *w, const ucontext_t *u, const siginfo_t *info) { return go_where(w, u, info, ds_go_stack, called); }

void go_arrives(const unsigned char *call)
{
	called = (uintptr_t)call + 2;
	ds_go_where = where;
}

/* As inject's goSyscall6, which says what the instructions are. */
static const unsigned char syscall6[] = {
	0x49, 0x89, 0xf2, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xce, 0x48, 0x89, 0xdf, 0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff,
	0x76, 0x15, 0x48, 0xf7, 0xd8, 0x48, 0x89, 0xc1, 0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff, 0x48, 0xc7, 0xc3, 0, 0, 0, 0, 0xc3,
	0x48, 0x89, 0xd3, 0x48, 0xc7, 0xc1, 0, 0, 0, 0, 0xc3,
};
enum { CALL_AT = 12 };

const unsigned char *go_function(const struct ds_text *text, const unsigned char *call)
{
	const unsigned char *begin = (const unsigned char *)text->begin, *end = (const unsigned char *)text->end;

	if (call - begin < CALL_AT || end - call < (ptrdiff_t)sizeof syscall6 - CALL_AT || memcmp(call - CALL_AT, syscall6, sizeof syscall6) != 0)
		return NULL;
	return call - CALL_AT;
}

bool go_waits_past(const struct ds_text *text, const unsigned char *call)
{
	static const unsigned char number[] = {0xb8, 0x19, 1, 0, 0}; /* mov $SYS_epoll_pwait, %eax */

	return (const char *)call - text->begin >= (ptrdiff_t)sizeof number && memcmp(call - sizeof number, number, sizeof number) == 0;
}

/* The beginnings of what a program has that exn-go built (internal/mark), and one that uses the Go
 * package. */
static const char *const marks[] = {"exn-go built this: ", "\texnet\t"};

bool go_is_direct(const char *begin, const char *end)
{
	for (const char *p = begin; (p = memchr(p, 'x', (size_t)(end - p))); p++)
		for (unsigned i = 0; i < sizeof marks / sizeof *marks; i++) {
			const char *x = strchr(marks[i], 'x');
			size_t before = (size_t)(x - marks[i]), n = strlen(marks[i]);

			if ((size_t)(p - begin) >= before && (size_t)(end - p) >= n - before && !memcmp(p - before, marks[i], n))
				return true;
		}
	return false;
}
#endif
