#include "probe.h"

/* Probes that make code while they run, as JITs and loaders of their own do, and call the kernel by
 * it. The library does not see those calls: so the connections have to be TCP from then on. */

typedef long mover(int fd, const void *p, size_t n);

/* Two functions, which read and write: their places in the code. */
#if defined(__x86_64__)
static const unsigned char code[] = {
	0xb8, SYS_read, 0, 0, 0, 0x0f, 0x05, 0xc3,  /* mov $nr, %eax; syscall; ret */
	0xb8, SYS_write, 0, 0, 0, 0x0f, 0x05, 0xc3,
};
enum { WRITE = 8 };
#elif defined(__aarch64__)
static const uint32_t code[] = {
	0xd2800008 | SYS_read << 5, 0xd4000001, 0xd65f03c0, /* mov x8, #nr; svc #0; ret */
	0xd2800008 | SYS_write << 5, 0xd4000001, 0xd65f03c0,
};
enum { WRITE = 12 };
#endif

enum { PAGE = 4096, PAGES = 64 };
static mover *made_read, *made_write;

static void use(char *at)
{
	__builtin___clear_cache(at, at + sizeof code);
	made_read = (mover *)(uintptr_t)at;
	made_write = (mover *)(uintptr_t)(at + WRITE);
}

/* In memory that could be written before. */
static void make_protected(void)
{
	char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	memcpy(p + (PAGES - 1) * PAGE - 4, code, sizeof code); /* across the end of a page */
	if (mprotect(p, PAGES * PAGE, PROT_READ | PROT_EXEC) != 0)
		die("mprotect");
	use(p + (PAGES - 1) * PAGE - 4);
}

/* In a file, whose end is before that of the mapping. */
static void make_mapped(void)
{
	int fd = memfd_create("probe", 0);

	if (fd < 0 || pwrite(fd, code, sizeof code, PAGE) != sizeof code)
		die("memfd_create");
	char *p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		die("mmap");
	close(fd);
	use(p + PAGE);
}

static char sent[4096], back[sizeof sent];

static void all(mover *by, int fd, char *p, size_t size)
{
	for (size_t n = 0; n < size;) {
		long r = by(fd, p + n, size - n);
		if (r <= 0)
			die("made");
		n += (size_t)r;
	}
}

/* Calls by name and by what was made follow each other. */
static void exchange(int c, int s)
{
	for (unsigned i = 0; i < 50; i++) {
		fill(sent, sizeof sent, i);
		put(c, sent, 7);
		all(made_write, c, sent, sizeof sent);
		size_t n = get(s, back, 7);
		all(made_read, s, back, 100);
		n += 100 + get(s, back + 100, sizeof back - 100);
		out("%zu %s", n, memcmp(sent, back, sizeof sent) ? "wrong" : "right");
		put(s, sent, sizeof sent);
		memset(back, 0, sizeof back);
		all(made_read, c, back, sizeof back);
		out("back: %s", memcmp(sent, back, sizeof sent) ? "wrong" : "right");
	}
	hang_up(c, s);
}

static void before(void (*make)(void))
{
	struct sockaddr_in addr;
	int l, c, s;

	make();
	l = listener(&addr);
	c = dial(&addr);
	s = accept(l, NULL, NULL);
	close(l);
	exchange(c, s);
}

static void during(void (*make)(void))
{
	int c, s;

	pair(&c, &s);
	is_direct();
	put(c, "unread", 6);
	make();
	out("%zu %.6s", get(s, back, 6), back);
	exchange(c, s);
}

/* What has no system call leaves all as it is: code, and data between it. */
static void harmless(void)
{
	static const unsigned char nothing[] = {0x48, 0xb8, 0x0f, 0x05, 0, 0, 0, 0, 0, 0, 0xc3}; /* movabs $0x50f, %rax; ret */
	char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned seed = 1;
	int c, s;

	pair(&c, &s);
	is_direct();
	for (int round = 0; round < 20; round++) {
		if (mprotect(p, PAGES * PAGE, PROT_READ | PROT_WRITE) != 0)
			die("mprotect");
		for (size_t i = 0; i + sizeof nothing < PAGE; i += sizeof nothing)
			memcpy(p + i, nothing, sizeof nothing);
		for (size_t i = PAGE; i < PAGES * PAGE; i++)
			p[i] = (char)random_below(&seed, 256);
		if (mprotect(p, PAGES * PAGE, PROT_READ | PROT_EXEC) != 0 || mprotect(p, PAGE, PROT_WRITE | PROT_EXEC) != 0)
			die("mprotect");
		fill(sent, sizeof sent, (unsigned)round);
		put(c, sent, sizeof sent);
		get(s, back, sizeof back);
		out("%s", memcmp(sent, back, sizeof sent) ? "wrong" : "right");
	}
	still_direct(c, s);
	hang_up(c, s);
}

#define EACH(name) \
	static void name##_before(void) { before(make_##name); } \
	static void name##_during(void) { during(make_##name); }
EACH(protected)
EACH(mapped)

const struct probe made_probes[] = {
	{"made-protected-before", protected_before, 1},
	{"made-protected-during", protected_during, 0},
	{"made-mapped-before", mapped_before, 1},
	{"made-mapped-during", mapped_during, 0},
	{"made-harmless", harmless, 0},
	{NULL, NULL, 0},
};
