/* A plugin that makes system calls by instructions of its own, each function by another one. BYTES
 * of nothing make it large. A table lies between its functions, as those of ciphers do, and has the
 * bytes of the instruction in many places. APART and RELOCATED make it one that stays as it is. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static inline __attribute__((always_inline)) long own(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long rc;

	__asm__ volatile("syscall" : "=a"(rc) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	if (rc >= 0 || rc < -4095)
		return rc;
	errno = (int)-rc;
	return -1;
}

#ifdef APART /* in another segment of code */
#define PLACE __attribute__((section(".apart")))
#else
#define PLACE
#endif
#ifdef RELOCATED /* behind a system call is an instruction that the dynamic linker relocates */
__asm__("	.text\n"
	"	.type	relocated, @function\n"
	"relocated:\n"
	"	.cfi_startproc\n"
	"	movl	$39, %eax\n"
	"	syscall\n"
	"	movabsq	$plugin_at_once, %rax\n"
	"	.fill	50, 3, 0xc08948\n" /* movq %rax, %rax */
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size	relocated, .-relocated\n");
extern char *relocated(void) __attribute__((visibility("hidden")));
#endif

#define CALL(name, nr, args, ...) \
	PLACE long plugin_##name args; \
	PLACE long plugin_##name args { return own(nr, __VA_ARGS__); }
#define THREE(name) CALL(name, SYS_##name, (long a, long b, long c), a, b, c, 0, 0, 0)
#define SIX(name) CALL(name, SYS_##name, (long a, long b, long c, long d, long e, long f), a, b, c, d, e, f)
THREE(read) THREE(write) THREE(recvmsg) THREE(sendmsg) THREE(readv) THREE(writev) THREE(poll) THREE(ioctl) THREE(close)
THREE(dup) THREE(dup2) THREE(dup3) THREE(fcntl) THREE(shutdown) THREE(epoll_create1)
SIX(recvfrom) SIX(sendto) SIX(recvmmsg) SIX(sendmmsg) SIX(splice) SIX(sendfile) SIX(epoll_ctl) SIX(epoll_wait) SIX(select)
SIX(setsockopt) SIX(getsockopt)
CALL(recv, SYS_recvfrom, (long a, long b, long c, long d), a, b, c, d, 0, 0)
CALL(send, SYS_sendto, (long a, long b, long c, long d), a, b, c, d, 0, 0)
CALL(preadv2, SYS_preadv2, (long a, long b, long c, long d, long e), a, b, c, d, 0, e)
CALL(pwritev2, SYS_pwritev2, (long a, long b, long c, long d, long e), a, b, c, d, 0, e)
CALL(ppoll, SYS_ppoll, (long a, long b, long c, long d), a, b, c, d, 8, 0)
CALL(pselect, SYS_pselect6, (long a, long b, long c, long d, long e), a, b, c, d, e, 0)
CALL(epoll_pwait, SYS_epoll_pwait, (long a, long b, long c, long d, long e), a, b, c, d, e, 8)
CALL(syscall, nr, (long nr, long a, long b, long c), a, b, c, 0, 0, 0)

/* Its constructor runs before the dynamic linker is done, and makes calls of its own. */
int plugin_at_once;
__attribute__((constructor)) static void at_once(void) { plugin_at_once = (int)own(SYS_getppid, 0, 0, 0, 0, 0, 0); }

#define TABLE(name) \
	name ":	.set x, 1\n" \
	"	.rept 256\n" \
	"	.rept 62\n" \
	"	.set x, (x * 1103515245 + 12345) & 0x7fffffff\n" \
	"	.byte (x >> 16) & 0xff\n" \
	"	.endr\n" \
	"	.byte 0x0f, 0x05\n" \
	"	.endr\n"
__asm__("	.section .rodata\n" TABLE("as_it_was") "	.text\n	.p2align 6\n" TABLE("table") "	.p2align 6\n");
extern const char table[1 << 14] __attribute__((visibility("hidden"))), as_it_was[sizeof table] __attribute__((visibility("hidden")));

/* Are the table and the relocated instruction as they were? */
int plugin_same(void);
int plugin_same(void)
{
#ifdef RELOCATED
	if (relocated() != (char *)&plugin_at_once)
		return 0;
#endif
	return memcmp(table, as_it_was, sizeof table) == 0;
}

#ifdef BYTES
__asm__(".text\n.fill " BYTES ", 1, 0x90\n");
#endif
