/* What the files of interposed calls share. */
#ifndef DS_HOOKS_H
#define DS_HOOKS_H

#include "fd/fd.h"
#include "segment/segment.h"

#define EXPORT __attribute__((visibility("default")))
#define ALIAS(name, of) extern __typeof__(of) name EXPORT __attribute__((alias(#of), copy(of)))

/* Before exec in this process or in a vfork child: moves the sockets that the program inherits back
 * to TCP, except those that inheritance (may be NULL) takes. Reads the kernel's list of
 * descriptors, not our table, which is the parent's in a vfork child. Allocates no memory. */
struct inheritance;
void inherit_demote(struct inheritance *inheritance) DS_HIDDEN;
/* The same before the C library itself makes a child. */
void spawn_demote(enum taker taker) DS_HIDDEN;

/* If system call nr with six arguments is a fork, does it and sets *pid to its result. */
bool fork_call(long nr, const long *a, long *pid) DS_HIDDEN;

/* Announces the listeners among the descriptors from first to end: this process has them from its
 * parent, from an earlier program, or from before it got this library. INHERITED_END: descriptors
 * that a program begins with are below; inherited_numbers has a bit for each that may be open. */
enum { INHERITED_END = 32 };
extern uint32_t inherited_numbers DS_HIDDEN;
void adopt_listeners(int first, int end) DS_HIDDEN;

/* Before the program runs: finds out whether its vfork is this library's. */
void vfork_init(void) DS_HIDDEN;

/* Before the program runs: looks up the functions that signal.c calls. */
void signals_init(void) DS_HIDDEN;

/* Moves the descriptors that a message passes by SCM_RIGHTS back to TCP. False: m cannot be
 * read. */
bool rights_demote(const struct msghdr *m) DS_HIDDEN;

/* If system call nr belongs to this library, makes it: true, and *rc and errno as syscall(2).
 * hooked_call: not those that the C library's names bring here before. */
bool hooked_call(long nr, const long a[6], long *rc) DS_HIDDEN;
bool every_call(long nr, const long a[6], long *rc) DS_HIDDEN;

/* For each system call below DS_WAYS, which of its calls hooked_call may want, and which every_call
 * (ways.c): those on a descriptor of ours, all, those of a process that has or had a descriptor of
 * ours. DS_WAY and DS_WAY_IF_ANY know these values. */
enum { DS_WAYS = 512 };
enum { NEVER, BY_DESCRIPTOR, ALWAYS, IF_ANY };
extern const uint8_t ds_ways[DS_WAYS] DS_HIDDEN, ds_own_ways[DS_WAYS] DS_HIDDEN;

/* In assembly: is the call of this number, below DS_WAYS, ours by the table ways? Goes to 3 if so,
 * to 1 if not, and by 4, which DS_WAY_IF_ANY is, for the rarer ways. The first argument is in rdi;
 * rcx and r11 change. */
#define DS_WAY(ways, number) \
	"	leaq	" ways "(%rip), %r11\n" \
	"	movzbl	(%r11," number "), %ecx\n" \
	"	subl	$1, %ecx\n" \
	"	js	1f\n" \
	"	jnz	4f\n" \
	"	movl	%edi, %r11d\n" \
	"	cmpl	fd_tab_size(%rip), %r11d\n" \
	"	jae	1f\n" \
	"	movq	fd_tab(%rip), %rcx\n" \
	"	cmpq	$0, (%rcx,%r11,8)\n" \
	"	jne	3f\n"
#define DS_WAY_IF_ANY \
	"4:	subl	$2, %ecx\n" \
	"	jnz	3f\n" \
	"	cmpl	$0, fd_tab_size(%rip)\n" \
	"	je	1b\n"

#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
extern int pidfd_getfd(int pidfd, int target, unsigned flags) EXPORT; /* the C library's headers may not have it */

/* Before io_submit of n iocbs: what is done later is done by the kernel. */
void aio_submitted(long n, void *const list[]) DS_HIDDEN;

/* CALL, or CALL_UNCOUNTED if a send of n bytes may be that: by these flags, and by its size, since
 * a connection may become direct while a large one goes on. */
#define CALL_SEND(k, fd, n, flags) CALL_BY(k, fd, call_send, n, flags)
/* The call of CALL_SEND. No lock. */
static inline struct call call_send(int fd, uintptr_t w, size_t n, int flags)
{
	enum { SMALL = 1 << 14, LARGE = 1 << 18 };
	struct conn *c = word_conn(w);
	bool fine = (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE)) == 0 && (n <= LARGE || (c && ds_life_nonblock(&c->life)));

	/* A small one has room on a connection that has hardly been used. */
	return fine ? call_uncounted(fd, w, !(flags & MSG_DONTWAIT) && n > SMALL) : call_waiting(fd, w, !(flags & MSG_DONTWAIT));
}

/* Before a call of the kernel's that counts as one on the shadow, and would keep the connection of
 * k on TCP as long as it waits: where other threads may want to send, waits for data as recv does.
 * *fd stays a descriptor of it. *waited: it has, so that the call that follows is not the program's
 * first, and does not wait. False: -1 and errno. */
bool await_data(struct call *k, int *fd, bool *waited) DS_HIDDEN;

/* True if the set can be read and written, and has sockets of ours. */
bool poll_ours(struct pollfd *fds, nfds_t n) DS_HIDDEN;
bool select_ours(int n, fd_set *in, fd_set *out, fd_set *except) DS_HIDDEN;

/* True if t can be read and is valid as a timeout. */
static inline bool time_fine(const struct timespec *t)
{
	return ds_readable(t, sizeof *t) && t->tv_sec >= 0 && t->tv_nsec >= 0 && t->tv_nsec <= 999999999;
}

#endif
