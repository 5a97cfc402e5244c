/* Exchanges bytes with itself by a connection, first by write and read, then by code that it has
 * made, as a JIT or a loader of its own does. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef long mover(int fd, void *p, size_t n);

static void need(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

/* A function that makes the system call nr. */
static mover *make(int nr)
{
	enum { PAGE = 4096 };
#if defined(__x86_64__)
	const unsigned char code[] = {0xb8, (unsigned char)nr, 0, 0, 0, 0x0f, 0x05, 0xc3}; /* mov $nr, %eax; syscall; ret */
#else
	const uint32_t code[] = {0xd2800008 | (uint32_t)nr << 5, 0xd4000001, 0xd65f03c0}; /* mov x8, #nr; svc #0; ret */
#endif
	char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(p != MAP_FAILED, "mmap");
	memcpy(p, code, sizeof code);
	need(mprotect(p, PAGE, PROT_READ | PROT_EXEC) == 0, "mprotect");
	__builtin___clear_cache(p, p + sizeof code);
	return (mover *)(uintptr_t)p;
}

/* Receives the n bytes at want by a function. */
static void expect(mover *get, int fd, const char *want, size_t n)
{
	enum { LONG = 20000 };
	struct pollfd f = {.fd = fd, .events = POLLIN};
	char b[1024];
	ssize_t r;

	for (size_t have = 0; have < n; have += (size_t)r) {
		need(poll(&f, 1, LONG) == 1, "the bytes are lost");
		r = get(fd, b, n - have);
		need(r > 0 && !memcmp(b, want + have, (size_t)r), "read");
	}
}

static long by_read(int fd, void *p, size_t n) { return read(fd, p, n); }
static long by_write(int fd, void *p, size_t n) { return write(fd, p, n); }

int main(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	mover *get = by_read, *put = by_write;
	char b[1000];
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s = -1;

	need(bind(l, (void *)&at, sizeof at) == 0 && listen(l, 1) == 0 && getsockname(l, (void *)&at, &len) == 0, "listen");
	need(connect(c, (void *)&at, sizeof at) == 0 && (s = accept(l, NULL, NULL)) >= 0, "accept");
	for (int i = 0; i < 600; i++) {
		memset(b, i, sizeof b);
		if (i == 300) {
			get = make(SYS_read);
			put = make(SYS_write);
		}
		need((i % 2 ? put : by_write)(c, b, sizeof b) == sizeof b, "write");
		expect(i % 3 ? get : by_read, s, b, sizeof b);
		need(put(s, b, 10) == 10, "answer");
		expect(get, c, b, 10);
	}
	return 0;
}
