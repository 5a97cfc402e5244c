/* Writes to a connection to itself by write, then by an instruction of its own that no jump can
 * replace: one leads to it, one behind it, and there is no space near it. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

long stuck(long nr, long fd, const void *p, size_t n);
__asm__("	.text\n"
	"	.globl	stuck\n"
	"	.type	stuck, @function\n"
	"stuck:\n"
	"	.cfi_startproc\n"
	"	movq	%rdi, %rax\n"
	"	movq	%rsi, %rdi\n"
	"	movq	%rdx, %rsi\n"
	"	movq	%rcx, %rdx\n"
	"	.fill	50, 3, 0xc08948\n" /* movq %rax, %rax */
	"	testq	%rdx, %rdx\n"
	"	jz	2f\n"
	"	jmp	1f\n"
	"	nop\n"
	"1:	syscall\n"
	"2:	.fill	50, 3, 0xc08948\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size	stuck, .-stuck\n"
	"	.type	behind, @function\n"
	"behind:\n"
	"	.cfi_startproc\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size	behind, .-behind\n");

static void need(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

/* Receives the n bytes at want. */
static void expect(int fd, const char *want, size_t n)
{
	enum { LONG = 20000 };
	struct pollfd f = {.fd = fd, .events = POLLIN};
	char b[1024];
	ssize_t r;

	for (size_t have = 0; have < n; have += (size_t)r) {
		need(poll(&f, 1, LONG) == 1, "the bytes are lost");
		r = read(fd, b, n - have);
		need(r > 0 && !memcmp(b, want + have, (size_t)r), "read");
	}
}

int main(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	char b[1000];
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s = -1;

	need(bind(l, (void *)&at, sizeof at) == 0 && listen(l, 1) == 0 && getsockname(l, (void *)&at, &len) == 0, "listen");
	need(connect(c, (void *)&at, sizeof at) == 0 && (s = accept(l, NULL, NULL)) >= 0, "accept");
	for (int i = 0; i < 600; i++) {
		memset(b, i, sizeof b);
		need((i < 300 ? write(c, b, sizeof b) : stuck(SYS_write, c, b, sizeof b)) == sizeof b, "write");
		expect(s, b, sizeof b);
		need(write(s, b, 10) == 10, "answer");
		expect(c, b, 10);
	}
	return 0;
}
