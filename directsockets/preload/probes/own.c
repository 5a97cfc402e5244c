#include "ways.h"

#include <sched.h>

/* Probes of system calls that a program makes by instructions of its own. */

#ifdef LOW_BYTES /* the section that takes the addresses below the text */
__attribute__((used, section(".low,\"aw\",@nobits#"))) static char low[LOW_BYTES];
#endif

#if defined(__x86_64__)
/* Forms in which compilers and people write it: the number and what is done with the result stand
 * close by, or far. */
static inline long own(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long rc;

	__asm__ volatile("syscall" : "=a"(rc) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return rc;
}
__attribute__((noinline)) static long apart(long nr, long a, long b, long c, long d, long e, long f) { return own(nr, a, b, c, d, e, f); }

/* Assembly alone, as a library without a C library has it, with space behind it; naked is in no
 * table for those who unwind. */
#define ASSEMBLY(name, begins, ends) \
	long name(long nr, long a, long b, long c, long d, long e, long f); \
	__asm__("	.pushsection .text\n" \
		"	.globl	" #name "\n" \
		"	.type	" #name ", @function\n" \
		"	.p2align 4\n" #name ":\n" begins "	movq	%rdi, %rax\n" \
		"	movq	%rsi, %rdi\n" \
		"	movq	%rdx, %rsi\n" \
		"	movq	%rcx, %rdx\n" \
		"	movq	%r8, %r10\n" \
		"	movq	%r9, %r8\n" \
		"	movq	8(%rsp), %r9\n" \
		"	syscall\n" \
		"	ret\n" ends "	.size	" #name ", .-" #name "\n" \
		"	.p2align 4\n" \
		"	.popsection\n")
ASSEMBLY(bare, "	.cfi_startproc\n", "	.cfi_endproc\n");
ASSEMBLY(naked, "", "");

/* All registers that a system call keeps are kept, and the result comes back. */
static long keeps(long nr, long a, long b, long c)
{
	register long r12 __asm__("r12") = 0x1212, r13 __asm__("r13") = 0x1313, r8 __asm__("r8") = 0, r9 __asm__("r9") = 0, r10 __asm__("r10") = 0;
	double x = (double)a + 0.5;
	long rc, di = a, si = b, dx = c;

	__asm__ volatile("syscall" : "=a"(rc), "+D"(di), "+S"(si), "+d"(dx), "+r"(r8), "+r"(r9), "+r"(r10), "+r"(r12), "+r"(r13), "+x"(x) : "0"(nr) : "rcx", "r11", "memory");
	if (di != a || si != b || dx != c || r8 || r9 || r10 || r12 != 0x1212 || r13 != 0x1313 || x != (double)a + 0.5)
		die("registers");
	return rc;
}
#else
static long own(long nr, long a, long b, long c, long d, long e, long f) { return syscall(nr, a, b, c, d, e, f); }
#define apart own
#define bare own
#define naked own
static long keeps(long nr, long a, long b, long c) { return own(nr, a, b, c, 0, 0, 0); }
#endif

static long by_own(int fd, void *p, size_t n, int in) { return own(in ? SYS_read : SYS_write, fd, (long)p, (long)n, 0, 0, 0); }
static long by_apart(int fd, void *p, size_t n, int in) { return apart(in ? SYS_recvfrom : SYS_sendto, fd, (long)p, (long)n, 0, 0, 0); }
static long by_bare(int fd, void *p, size_t n, int in) { return bare(in ? SYS_read : SYS_write, fd, (long)p, (long)n, 0, 0, 0); }
static long by_naked(int fd, void *p, size_t n, int in) { return naked(in ? SYS_read : SYS_write, fd, (long)p, (long)n, 0, 0, 0); }
static long by_keeping(int fd, void *p, size_t n, int in) { return keeps(in ? SYS_read : SYS_write, fd, (long)p, (long)n); }

static long by_vector(int fd, void *p, size_t n, int in)
{
	struct iovec v = {p, n};

	return own(in ? SYS_readv : SYS_writev, fd, (long)&v, 1, 0, 0, 0);
}

static long by_message(int fd, void *p, size_t n, int in)
{
	struct iovec v = {p, n};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

	return own(in ? SYS_recvmsg : SYS_sendmsg, fd, (long)&m, 0, 0, 0, 0);
}

/* Waits until it is ready, and moves what is. */
static long by_poll(int fd, void *p, size_t n, int in)
{
	struct pollfd f = {fd, in ? POLLIN : POLLOUT, 0};
	struct timespec t = {LONG / 1000, 0};

	if (own(SYS_ppoll, (long)&f, 1, (long)&t, 0, 8, 0) != 1)
		die("ppoll");
	return apart(in ? SYS_recvfrom : SYS_sendto, fd, (long)p, (long)n, MSG_DONTWAIT, 0, 0);
}

static long by_epoll(int fd, void *p, size_t n, int in)
{
	struct epoll_event ev = {.events = in ? EPOLLIN : EPOLLOUT};
	long ep = own(SYS_epoll_create1, EPOLL_CLOEXEC, 0, 0, 0, 0, 0);

	own(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, fd, (long)&ev, 0, 0);
	if (own(SYS_epoll_pwait, ep, (long)&ev, 1, LONG, 0, 8) != 1)
		die("epoll_pwait");
	own(SYS_close, ep, 0, 0, 0, 0, 0);
	return bare(in ? SYS_read : SYS_write, fd, (long)p, (long)n, 0, 0, 0);
}

static long by_copy(int fd, void *p, size_t n, int in)
{
	long copy = own(SYS_dup, fd, 0, 0, 0, 0, 0), r = by_own((int)copy, p, n, in);

	own(SYS_close, copy, 0, 0, 0, 0, 0);
	return r;
}

/* By a child that a clone of the program's own has made: the C library does not see it. */
static long by_child(int fd, void *p, size_t n, int in)
{
	char *shared = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int st = 0;

	memcpy(shared, p, n);
	long pid = own(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
	if (pid == 0)
		own(SYS_exit_group, by_own(fd, shared, n, in) != (long)n, 0, 0, 0, 0, 0);
	waitpid((pid_t)pid, &st, 0);
	memcpy(p, shared, n);
	munmap(shared, n);
	return st == 0 ? (long)n : -1;
}

static struct call {
	int fd, in;
	void *p;
	size_t n;
	long r;
} for_handler;
static void handler(int sig)
{
	(void)sig;
	for_handler.r = by_own(for_handler.fd, for_handler.p, for_handler.n, for_handler.in);
}
static long by_handler(int fd, void *p, size_t n, int in)
{
	for_handler = (struct call){fd, in, p, n, 0};
	signal(SIGUSR1, handler);
	own(SYS_tgkill, getpid(), own(SYS_gettid, 0, 0, 0, 0, 0, 0), SIGUSR1, 0, 0, 0);
	return for_handler.r;
}

static void *in_thread(void *call)
{
	struct call *k = call;

	k->r = by_own(k->fd, k->p, k->n, k->in);
	return NULL;
}
static long by_thread(int fd, void *p, size_t n, int in)
{
	struct call k = {fd, in, p, n, 0};
	pthread_t t;

	pthread_create(&t, NULL, in_thread, &k);
	pthread_join(t, NULL);
	return k.r;
}

/* A child that shares memory and stack, and ends at once: the stack and the connection stay. */
static long by_vfork(int fd, void *p, size_t n, int in)
{
#if defined(__x86_64__)
	long pid;
	int st = -1;

	__asm__ volatile("syscall\n\t"
			 "testq %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "movl $7, %%edi\n\t"
			 "movl $231, %%eax\n\t" /* exit_group */
			 "syscall\n"
			 "1:"
			 : "=a"(pid) : "a"((long)SYS_vfork) : "rcx", "r11", "rdi", "memory");
	if (pid < 0 || waitpid((pid_t)pid, &st, 0) != pid || WEXITSTATUS(st) != 7)
		die("vfork");
#endif
	return by_own(fd, p, n, in);
}

/* A socket that the program itself makes and connects. */
static void sockets(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof to;
	char b[16] = {0};

	for (int i = 0; i < 40; i++) {
		long l = own(SYS_socket, AF_INET, SOCK_STREAM, 0, 0, 0, 0);
		to.sin_port = 0;
		R(own(SYS_bind, l, (long)&to, sizeof to, 0, 0, 0));
		R(own(SYS_listen, l, 5, 0, 0, 0, 0));
		own(SYS_getsockname, l, (long)&to, (long)&len, 0, 0, 0);
		long c = own(SYS_socket, AF_INET, SOCK_STREAM, 0, 0, 0, 0);
		R(own(SYS_connect, c, (long)&to, sizeof to, 0, 0, 0));
		long s = own(SYS_accept4, l, 0, 0, 0, 0, 0);
		for (int k = 0; k < 50; k++) {
			if (own(SYS_write, c, (long)"question", 8, 0, 0, 0) != 8 || own(SYS_recvfrom, s, (long)b, 8, MSG_WAITALL, 0, 0) != 8 || memcmp(b, "question", 8))
				die("question");
			if (own(SYS_sendto, s, (long)"answer", 6, 0, 0, 0) != 6 || own(SYS_recvfrom, c, (long)b, 6, MSG_WAITALL, 0, 0) != 6 || memcmp(b, "answer", 6))
				die("answer");
		}
		for (long last = monotonic() + LONG; i == 0 && has_library() && !direct((int)c) && monotonic() < last; nap(2)) {
			own(SYS_write, c, (long)"more", 4, 0, 0, 0);
			own(SYS_read, s, (long)b, sizeof b, 0, 0, 0);
		}
		R(own(SYS_shutdown, c, SHUT_WR, 0, 0, 0, 0));
		R(own(SYS_read, s, (long)b, sizeof b, 0, 0, 0));
		own(SYS_close, c, 0, 0, 0, 0, 0);
		own(SYS_close, s, 0, 0, 0, 0, 0);
		own(SYS_close, l, 0, 0, 0, 0, 0);
	}
}

static const struct way ways[] = {
	{"own: read, write", by_own}, {"own: recvfrom, sendto", by_apart}, {"own: assembly", by_bare}, {"own: registers", by_keeping},
	{"own: assembly without a frame", by_naked},
	{"own: readv, writev", by_vector}, {"own: recvmsg, sendmsg", by_message}, {"own: ppoll", by_poll}, {"own: epoll_pwait", by_epoll},
	{"own: a copy's number", by_copy}, {"own: child", by_child}, {"own: handler", by_handler}, {"own: thread", by_thread},
	{"own: vfork", by_vfork},
	{0},
};

static void own_ways(void) { each_way(ways); }

const struct probe own_probes[] = {
	{"past-own-ways", own_ways, 0},
	{"past-own-sockets", sockets, 0},
	{NULL, NULL, 0},
};
