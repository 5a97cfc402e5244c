/* promises ROW: what the kernel promises of memory, in a program and its children. It prints what
 * it sees, which is the same with a pager and without. Before that, with a pager, it waits until
 * most of the memory is elsewhere. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "elsewhere.h"

enum { PAGES = 256, SIZE = PAGES * P };

#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif
enum { GUARD_INSTALL = 102, GUARD_REMOVE = 103 }; /* madvise, Linux 6.13 */

static void fail(const char *what)
{
	perror(what);
	exit(2);
}

static unsigned char *area(void)
{
	unsigned char *m = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (m == MAP_FAILED)
		fail("mmap");
	return m;
}

static void push(const unsigned char *m, int most)
{
	if (pushed(m, PAGES, most, 3000))
		return;
	fprintf(stderr, "%d pages of %d stay here\n", present(m, PAGES), PAGES);
	exit(1);
}

/* In a child. What it shares with its parent may stay here (docs/memory.md), and what it has mapped
 * itself may not be paged yet: what its memory holds is right either way. */
static void ease(const unsigned char *m, int most)
{
	pushed(m, PAGES, most, 300);
}

/* Pages of the area that begin with the byte. */
static int pages(const unsigned char *m, int byte)
{
	int n = 0;

	for (int i = 0; i < PAGES; i++)
		n += m[(size_t)i * P] == byte;
	return n;
}

static void tell(const char *who, const unsigned char *m)
{
	printf("%s: %d pages of 0xaa, %d of 0x55, %d of 0\n", who, pages(m, 0xaa), pages(m, 0x55), pages(m, 0));
	fflush(stdout);
}

static pid_t forked(void)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork");
	return pid;
}

/* A child without the C library's fork: its handlers do not run. */
static pid_t cloned(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	if (pid < 0)
		fail("clone");
	return pid;
}

static void await(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status != 0)
		printf("the child ended with %#x\n", status);
}

static void advise(void *m, size_t n, int advice, const char *what)
{
	if (madvise(m, n, advice) != 0)
		printf("%s: %s\n", what, strerror(errno));
}

/* The area, wiped on fork but in its last quarter, elsewhere. */
static unsigned char *wiped(void)
{
	unsigned char *m = area();

	memset(m, 0xaa, SIZE);
	advise(m, SIZE / 4 * 3, MADV_WIPEONFORK, "wipe");
	push(m, PAGES / 8);
	return m;
}

static void wipe(void)
{
	unsigned char *m = wiped();

	for (int round = 0; round < 3; round++) {
		pid_t pid = forked();

		if (!pid) {
			tell("child", m);
			memset(m, 0x55, SIZE / 2);
			ease(m, PAGES / 8);
			pid = forked();
			if (!pid) {
				tell("grandchild", m);
				_exit(0);
			}
			await(pid);
			tell("child", m);
			_exit(0);
		}
		await(pid);
	}
	tell("parent", m);
}

/* Children that the C library knows nothing of. The first one touches nothing before its own. */
static void clones(void)
{
	unsigned char *m = wiped();
	pid_t pid = cloned();

	if (!pid) {
		advise(m, SIZE / 8, MADV_KEEPONFORK, "keep");
		pid = cloned();
		if (!pid) {
			tell("grandchild", m);
			_exit(0);
		}
		await(pid);
		tell("child", m);
		_exit(0);
	}
	await(pid);
	tell("parent", m);
}

/* One page amid others is wiped. */
static void one(void)
{
	unsigned char *m = area();

	memset(m, 0xaa, SIZE);
	advise(m + 20 * P, P, MADV_WIPEONFORK, "wipe");
	push(m, PAGES / 8);
	pid_t pid = forked();

	if (!pid) {
		tell("child", m);
		printf("that page: %#x\n", m[20 * P]);
		fflush(stdout);
		_exit(0);
	}
	await(pid);
	tell("parent", m);
}

/* The wish is taken back. */
static void keep(void)
{
	unsigned char *m = wiped();

	advise(m, SIZE / 2, MADV_KEEPONFORK, "keep");
	pid_t pid = forked();

	if (!pid) {
		tell("child", m);
		_exit(0);
	}
	await(pid);
}

/* The child takes it back, or moves the memory, and then looks. */
static void late(void)
{
	unsigned char *m = wiped();
	pid_t pid = forked();

	if (!pid) {
		advise(m, SIZE / 2, MADV_KEEPONFORK, "keep");
		unsigned char *to = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (mremap(m, SIZE / 2, SIZE / 2, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED ||
		    mremap(m + SIZE / 2, SIZE / 4, SIZE / 4, MREMAP_MAYMOVE | MREMAP_FIXED, to + SIZE / 2) == MAP_FAILED ||
		    mremap(m + SIZE / 4 * 3, SIZE / 4, SIZE / 4, MREMAP_MAYMOVE | MREMAP_FIXED, to + SIZE / 4 * 3) == MAP_FAILED)
			fail("mremap");
		tell("child", to);
		_exit(0);
	}
	await(pid);
	tell("parent", m);
}

/* The parent unmaps the memory as soon as it has forked. */
static void unmapped(void)
{
	for (int round = 0; round < 8; round++) {
		unsigned char *m = wiped();
		pid_t pid = forked();

		if (!pid) {
			tell("child", m);
			_exit(0);
		}
		munmap(m, SIZE);
		await(pid);
	}
}

/* A child has none of it, and gets new memory there. */
static void dontfork(void)
{
	unsigned char *m = area(), vector[PAGES];

	memset(m, 0xaa, SIZE);
	advise(m + SIZE / 4, SIZE / 2, MADV_DONTFORK, "dontfork");
	push(m, PAGES / 8);
	pid_t pid = forked();

	if (!pid) {
		int gone = mincore(m + SIZE / 4, P, vector) != 0 && errno == ENOMEM;
		unsigned char *n = mmap(m + SIZE / 4, SIZE / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		printf("gone %d, new %d\n", gone, n == m + SIZE / 4);
		usleep(getenv("EXNET_PAGER") ? 300000 : 0); /* until that is paged, too */
		tell("child", m);
		memset(m + SIZE / 4, 0x55, SIZE / 2);
		ease(m, PAGES / 2);
		tell("child", m);
		_exit(0);
	}
	await(pid);
	tell("parent", m);
}

/* Locked pages come and stay. A child's are not locked. */
static void lock(int flags)
{
	unsigned char *m = area();

	memset(m, 0xaa, SIZE);
	push(m, PAGES / 8);
	if (mlock2(m, SIZE, (unsigned)flags) != 0)
		fail("mlock");
	int n = pages(m, 0xaa);
	unsigned char *other = area();

	memset(other, 0x55, SIZE);
	push(other, PAGES / 8);
	printf("%d right, here %d\n", n, present(m, PAGES));
	pid_t pid = forked();

	if (!pid) {
		memset(m, 0x55, SIZE / 2);
		tell("child", m);
		_exit(0);
	}
	await(pid);
	tell("parent", m);
	munlock(m, SIZE);
	push(m, PAGES / 8);
	tell("parent", m);
}

static int make_uffd(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	struct uffdio_api api = {.api = UFFD_API};

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0)
		fail("userfaultfd");
	return fd;
}

static int take(int fd, void *m)
{
	struct uffdio_register r = {.range = {(uintptr_t)m, SIZE}, .mode = UFFDIO_REGISTER_MODE_MISSING};

	return ioctl(fd, UFFDIO_REGISTER, &r) == 0 ? 0 : errno;
}

static unsigned char *served;

/* Reads pages for which its own userfaultfd is asked. */
static void *reads(void *arg)
{
	(void)arg;
	for (int i = 0; i < PAGES; i++)
		if (served[(size_t)i * P] != 0x77)
			printf("page %d of its own is %#x\n", i, served[(size_t)i * P]);
	return NULL;
}

/* What has the program's own userfaultfd stays the program's. */
static void uffd(void)
{
	int fd = make_uffd();
	unsigned char *m = area(), page[P];
	pthread_t thread;

	served = area(); /* before there is much that could be paged: later, the pager has it */
	printf("own: %d\n", take(fd, served));
	memset(m, 0xaa, SIZE);
	push(m, PAGES / 8);
	memset(page, 0x77, P);
	pthread_create(&thread, NULL, reads, NULL);
	for (int n = 0; n < PAGES;) {
		struct uffd_msg msg;

		if (read(fd, &msg, sizeof msg) != sizeof msg) {
			usleep(100);
			continue;
		}
		struct uffdio_copy c = {.dst = msg.arg.pagefault.address & ~(uint64_t)(P - 1), .src = (uintptr_t)page, .len = P};

		if (ioctl(fd, UFFDIO_COPY, &c) != 0)
			fail("UFFDIO_COPY");
		n++;
	}
	pthread_join(thread, NULL);
	push(m, PAGES / 8);
	printf("%d of its own are right\n", pages(served, 0x77));
	tell("program", m);
}

/* Huge and merged pages. */
static void advised(int advice)
{
	size_t n = 8 << 20;
	unsigned char *m = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	advise(m, n, advice, "advice");
	memset(m, 0xaa, n);
	for (size_t i = 0; i < n; i += SIZE)
		push(m + i, PAGES / 4);
	pid_t pid = forked();
	int bad = 0;

	for (size_t i = 0; i < n; i++)
		bad += m[i] != 0xaa;
	printf("%d bytes are wrong\n", bad);
	fflush(stdout);
	if (!pid)
		_exit(0);
	await(pid);
}

static sigjmp_buf refused_read;

static void refuse_read(int signal)
{
	(void)signal;
	siglongjmp(refused_read, 1);
}

/* Pages whose reading is SIGSEGV. */
static int guards(const volatile unsigned char *m)
{
	volatile int n = 0;

	signal(SIGSEGV, refuse_read);
	for (volatile int i = 0; i < PAGES; i++) {
		if (sigsetjmp(refused_read, 1))
			n++;
		else
			(void)m[i * P];
	}
	signal(SIGSEGV, SIG_DFL);
	return n;
}

/* Behind a guard there are zeros, for a child, too. how: what installs it. */
static void guard(const char *how)
{
	unsigned char *m = area();
	struct iovec part = {m + SIZE / 4, SIZE / 2};

	memset(m, 0xaa, SIZE);
	push(m, PAGES / 8);
	if (strcmp(how, "madvise") == 0)
		advise(part.iov_base, part.iov_len, GUARD_INSTALL, "guard");
	else if (strcmp(how, "syscall") == 0)
		printf("guard: %ld\n", syscall(SYS_madvise, part.iov_base, part.iov_len, GUARD_INSTALL));
	else
		printf("guard: %zd\n", process_madvise((int)syscall(SYS_pidfd_open, getpid(), 0), &part, 1, GUARD_INSTALL, 0));
	printf("%d guards\n", guards(m));
	fflush(stdout);
	pid_t pid = forked();

	if (!pid) {
		printf("child: %d guards\n", guards(m));
		advise(m + SIZE / 4, SIZE / 2, GUARD_REMOVE, "no guard");
		tell("child", m);
		_exit(0);
	}
	await(pid);
	unsigned char *to = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mremap(m, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
		fail("mremap");
	push(to, PAGES / 4);
	printf("%d guards\n", guards(to));
	advise(to + SIZE / 4, SIZE / 2, GUARD_REMOVE, "no guard");
	tell("parent", to);
	push(to, PAGES / 4);
	tell("parent", to);
}

/* Memory that is filled in a row, up to a guard, and read in a row. */
static void guarded_rows(void)
{
	enum { ROW = 16 };
	unsigned char *m = area(), *other = area();

	memset(other, 0x55, SIZE);
	push(other, PAGES / 8); /* until memory is paged */
	usleep(getenv("EXNET_PAGER") ? 300000 : 0);
	for (int i = ROW - 1; i < PAGES; i += ROW)
		advise(m + i * P, P, GUARD_INSTALL, "guard");
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < PAGES; i++)
			if (i % ROW != ROW - 1)
				m[i * P] = 0xaa;
		printf("%d guards\n", guards(m));
		push(m, PAGES / 4);
	}
}

static atomic_int turn;

/* Reads pages that are about to get a guard. */
static void *read_guarded(void *arg)
{
	const volatile unsigned char *m = arg;

	for (volatile int i = 0; i < PAGES; i++) {
		while (atomic_load(&turn) < i)
			;
		if (!sigsetjmp(refused_read, 1))
			(void)m[i * P];
	}
	return NULL;
}

/* A thread reads pages while another one installs guards there. */
static void raced_guards(void)
{
	unsigned char *m = area();
	pthread_t reader;

	memset(m, 0xaa, SIZE);
	push(m, PAGES / 8);
	signal(SIGSEGV, refuse_read);
	pthread_create(&reader, NULL, read_guarded, m);
	for (int i = 0; i < PAGES; i++) {
		atomic_store(&turn, i);
		advise(m + i * P, P, GUARD_INSTALL, "guard");
	}
	pthread_join(reader, NULL);
	printf("%d guards\n", guards(m));
	advise(m, SIZE, GUARD_REMOVE, "no guard");
	tell("program", m);
}

/* The kernel may drop it: then it is zeros. A child's is zeros. */
static void droppable(void)
{
	unsigned char *m = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0), *other = area();

	if (m == MAP_FAILED)
		fail("MAP_DROPPABLE");
	memset(m, 0xaa, SIZE);
	memset(other, 0x55, SIZE);
	push(other, PAGES / 8);
	printf("%d pages are whole or zeros\n", pages(m, 0xaa) + pages(m, 0));
	pid_t pid = forked();

	if (!pid) {
		tell("child", m);
		_exit(0);
	}
	await(pid);
}

/* Memory that grows downwards. */
static void grows(void)
{
	unsigned char *room = mmap(NULL, 4 * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(room, 4 * SIZE);
	unsigned char *m = mmap(room + 3 * SIZE, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN, -1, 0);

	if (m == MAP_FAILED)
		fail("mmap");
	memset(m, 0xaa, SIZE);
	push(m, PAGES / 8);
	for (int i = 1; i <= PAGES; i++)
		m[-i * P] = 0x55;
	push(m - SIZE, PAGES / 8);
	tell("above", m);
	tell("below", m - SIZE);
}

int main(int argc, char **argv)
{
	const char *row = argc > 1 ? argv[1] : "";

	setvbuf(stdout, NULL, _IOLBF, 0);
	map_pressure();
	if (strcmp(row, "wipe") == 0)
		wipe();
	else if (strcmp(row, "wipe-clone") == 0)
		clones();
	else if (strcmp(row, "wipe-one") == 0)
		one();
	else if (strcmp(row, "wipe-keep") == 0)
		keep();
	else if (strcmp(row, "wipe-late") == 0)
		late();
	else if (strcmp(row, "wipe-unmap") == 0)
		unmapped();
	else if (strcmp(row, "dontfork") == 0)
		dontfork();
	else if (strcmp(row, "lock") == 0)
		lock(0);
	else if (strcmp(row, "lock-onfault") == 0)
		lock(MLOCK_ONFAULT);
	else if (strcmp(row, "uffd") == 0)
		uffd();
	else if (strcmp(row, "huge") == 0)
		advised(MADV_HUGEPAGE);
	else if (strcmp(row, "merge") == 0)
		advised(MADV_MERGEABLE);
	else if (strncmp(row, "guard-", 6) == 0)
		guard(row + 6);
	else if (strcmp(row, "guarded-rows") == 0)
		guarded_rows();
	else if (strcmp(row, "guards-raced") == 0)
		raced_guards();
	else if (strcmp(row, "droppable") == 0)
		droppable();
	else if (strcmp(row, "grows") == 0)
		grows();
	else
		return 2;
	puts("end");
	return 0;
}
