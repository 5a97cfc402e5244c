#include "probe.h"

#include <linux/io_uring.h>

/* Probes of a process with an io_uring of its own making, which uses it and ordinary calls on one
 * connection. */

/* A system call that no library sees. */
static long bare(long nr, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long rc;

	__asm__ volatile("syscall" : "=a"(rc) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return rc;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
#else
	(void)nr, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
	return -ENOSYS;
#endif
}

struct ring {
	int fd;
	struct io_uring_params p;
	char *rings;
	struct io_uring_sqe *sqes;
};

#define WORD(r, off) ((unsigned *)(void *)((r)->rings + (off)))

static int ring_new(struct ring *r)
{
	memset(r, 0, sizeof *r);
	r->fd = (int)bare(SYS_io_uring_setup, 4, (long)&r->p, 0, 0, 0, 0);
	if (r->fd < 0 || !(r->p.features & IORING_FEAT_SINGLE_MMAP))
		return 0;
	r->rings = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
	if (r->rings == MAP_FAILED) /* no larger than they are */
		r->rings = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
	r->sqes = mmap(NULL, 4 * sizeof *r->sqes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQES);
	return r->rings != MAP_FAILED && (void *)r->sqes != MAP_FAILED;
}

/* Receives up to n bytes by the ring. */
static int ring_recv(struct ring *r, int fd, void *buf, unsigned n)
{
	unsigned tail = *WORD(r, r->p.sq_off.tail), i = tail & *WORD(r, r->p.sq_off.ring_mask);

	r->sqes[i] = (struct io_uring_sqe){.opcode = IORING_OP_RECV, .fd = fd, .addr = (unsigned long)buf, .len = n};
	WORD(r, r->p.sq_off.array)[i] = i;
	__atomic_store_n(WORD(r, r->p.sq_off.tail), tail + 1, __ATOMIC_RELEASE);
	long rc;
	do
		rc = bare(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
	while (rc == -EINTR);
	unsigned head = *WORD(r, r->p.cq_off.head);
	if (rc < 0 || head == __atomic_load_n(WORD(r, r->p.cq_off.tail), __ATOMIC_ACQUIRE))
		die("io_uring_enter");
	struct io_uring_cqe *e = (struct io_uring_cqe *)(void *)(r->rings + r->p.cq_off.cqes) + (head & *WORD(r, r->p.cq_off.ring_mask));
	int got = e->res;
	__atomic_store_n(WORD(r, r->p.cq_off.head), head + 1, __ATOMIC_RELEASE);
	return got;
}

enum { PLAIN = 200, MIXED = 20 };

/* The process with the ring, at either end. */
static void with_ring(int l, const struct sockaddr_in *addr)
{
	struct ring r;
	int ring = ring_new(&r), s = addr ? socket(AF_INET, SOCK_STREAM, 0) : accept(l, NULL, NULL), bad = 0;

	if (addr && connect(s, (const struct sockaddr *)addr, sizeof *addr))
		die("connect");
	for (int i = 0; i < PLAIN + MIXED; i++) {
		char b = 0;

		if (i < PLAIN || !ring)
			get(s, &b, 1);
		else if (ring_recv(&r, s, &b, 1) != 1)
			bad++;
		bad += b != (char)i;
		put(s, &b, 1);
	}
	out(ring ? "with the ring: %d wrong" : "no io_uring: %d wrong", bad);
	fflush(NULL);
	_exit(0);
}

static void mixed(int client)
{
	struct sockaddr_in addr;
	int l = listener(&addr), bad = 0;
	pid_t pid = fork();

	if (pid == 0)
		with_ring(l, client ? &addr : NULL);
	int c = client ? accept(l, NULL, NULL) : dial(&addr);
	for (int i = 0; i < PLAIN + MIXED; i++) {
		char a = (char)i, b = 0;

		put(c, &a, 1);
		get(c, &b, 1);
		bad += a != b;
	}
	finish(pid);
	out("%d wrong", bad);
}

static void at_server(void) { mixed(0); }
static void at_client(void) { mixed(1); }

const struct probe uring_probes[] = {
	{"uring-server", at_server, 1},
	{"uring-client", at_client, 1},
	{NULL, NULL, 0},
};
