/* Children and threads of a program that has its system calls made by libexnds-free.so (free.h):
 * after each, bytes go over a direct connection.
 *
 *   freechildren LIBRARY */
#define _GNU_SOURCE
#include "free.h"

#include <sched.h>

/* vfork in a place of C. In the child the call number with arguments, and then exit(9). */
long vfork_place(long number, long a, long b, long c);
/* The same where no place makes vfork, and the child's calls come by Go's way. */
long vfork_go(long number, long a, long b, long c);
__asm__(
	"	.text\n"
	"	.globl	vfork_place, vfork_go\n"
	"vfork_place:\n"
	"	popq	%r9\n"
	"	movq	%rdi, %r8\n"
	"	movq	%rcx, %r10\n"
	"	movl	$58, %eax\n"
	"	addq	$-128, %rsp\n"
	"	leaq	1f(%rip), %r11\n"
	"	jmp	*entry(%rip)\n"
	"1:	subq	$-128, %rsp\n"
	"	testq	%rax, %rax\n"
	"	jz	2f\n"
	"	pushq	%r9\n"
	"	ret\n"
	"2:	movq	%r8, %rax\n"
	"	movq	%rsi, %rdi\n"
	"	movq	%rdx, %rsi\n"
	"	movq	%r10, %rdx\n"
	"	addq	$-128, %rsp\n"
	"	leaq	3f(%rip), %r11\n"
	"	jmp	*entry(%rip)\n"
	"3:	subq	$-128, %rsp\n"
	"	movl	$60, %eax\n"
	"	movl	$9, %edi\n"
	"	addq	$-128, %rsp\n"
	"	leaq	4f(%rip), %r11\n"
	"	jmp	*entry(%rip)\n"
	"4:	ud2\n"
	"vfork_go:\n"
	"	popq	%r9\n"
	"	movq	%rdi, %r8\n"
	"	movq	%rcx, %r10\n"
	"	movl	$58, %eax\n"
	"	syscall\n"
	"	testq	%rax, %rax\n"
	"	jz	2f\n"
	"	pushq	%r9\n"
	"	ret\n"
	"2:	movq	%r8, %rax\n"
	"	movq	%rsi, %rbx\n"
	"	movq	%rdx, %rcx\n"
	"	movq	%r10, %rdi\n"
	"	call	*go_entry(%rip)\n"
	"	movl	$60, %eax\n"
	"	movl	$9, %ebx\n"
	"	call	*go_entry(%rip)\n"
	"	ud2\n");

static int client, server;

/* Bytes in both directions, checked. */
static void talk(void)
{
	static unsigned n;
	unsigned in;

	for (int i = 0; i < 20; i++) {
		n++;
		all(client, true, (unsigned char *)&n, sizeof n);
		all(server, false, (unsigned char *)&in, sizeof in);
		if (in != n)
			fail("another number");
		all(server, true, (unsigned char *)&in, sizeof in);
		all(client, false, (unsigned char *)&in, sizeof in);
		if (in != n)
			fail("another answer");
	}
}

static void ended(long pid, int status)
{
	int st = -1;

	if (pid <= 0 || waitpid((pid_t)pid, &st, __WALL) != pid || !WIFEXITED(st) || WEXITSTATUS(st) != status) {
		fprintf(stderr, "child %ld: status %#x, not %d\n", pid, st, status);
		_exit(1);
	}
}

static const unsigned number = 77;

static void receive(void)
{
	unsigned in = 0;

	all(server, false, (unsigned char *)&in, sizeof in);
	if (in != number)
		fail("another number has come");
}

/* A new thread makes its first call while the one that started it waits in a hook. */
static void *sender(void *arg)
{
	unsigned out = number;

	(void)arg;
	usleep(1000);
	all(client, true, (unsigned char *)&out, sizeof out);
	return NULL;
}

static void with_sender(void)
{
	pthread_t t;

	pthread_create(&t, NULL, sender, NULL);
	receive();
	pthread_join(t, NULL);
}

/* What a clone on a stack of its own runs: its stack begins with this address. */
static void run_clone(void) __attribute__((used));
static void run_clone(void)
{
	if (place(SYS_write, client, (long)&number, sizeof number, 0, 0, 0) != sizeof number)
		place(SYS_exit, 1, 0, 0, 0, 0, 0);
	place(SYS_exit, 7, 0, 0, 0, 0, 0);
}

static long clone_on_stack(long flags, int *ended_at)
{
	enum { STACK = 1 << 16 };
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void (**top)(void) = (void (**)(void))(void *)(stack + STACK - 64);

	*top = run_clone;
	return call(SYS_clone, flags, (long)top, 0, (long)ended_at, 0, 0);
}

int main(int argc, char **argv)
{
	static const char *const no_arguments[] = {"none", NULL};
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof address;

	if (argc != 2)
		return 2;
	load(argv[1], (const unsigned long *)(void *)(argv - 1), true);
	int l = (int)CALL(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (l < 0 || bind(l, (void *)&address, sizeof address) < 0 || CALL(SYS_listen, l, 10, 0) < 0 || getsockname(l, (void *)&address, &len) < 0)
		fail("listen");
	client = (int)CALL(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (CALL(SYS_connect, client, &address, sizeof address) < 0 || (server = (int)CALL(SYS_accept4, l, NULL, NULL)) < 0)
		fail("connect");
	for (int i = 0; i < 20; i++)
		talk();
	for (int round = 0; round < 20; round++) {
		volatile int running = 1;

		by_go = round % 2;
		for (int go = 0; go < 2; go++) {
			long (*how)(long, long, long, long) = go ? vfork_go : vfork_place;

			ended(how(SYS_close, client, 0, 0), 9);
			ended(how(SYS_exit, 4, 0, 0), 4);
			ended(how(SYS_exit_group, 5, 0, 0), 5);
			ended(how(SYS_execve, (long)"/none", (long)no_arguments, (long)no_arguments), 9);
			talk();
			with_sender();
		}
		ended(call(SYS_fork, 0, 0, 0, 0, 0, 0) ?: (talk(), _exit(3), 0), 3);
		by_go = false;
		/* A thread with this one's FS base. */
		if (clone_on_stack(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID, (int *)&running) < 0)
			fail("clone");
		receive();
		while (running)
			usleep(100);
		ended(clone_on_stack(SIGCHLD, NULL), 7);
		receive();
		talk();
		with_sender();
	}
	return 0;
}
