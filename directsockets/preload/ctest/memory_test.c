// What segment/memory.c says about memory, against what the kernel says.
#include "harness.h"

#include "segment/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { PAGE = 4096 };

static uint8_t *fresh(size_t n, int how)
{
	void *p = mmap(NULL, n, how, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED, "mmap");
	return p;
}

// one question, asked of both: the kernel copies by a pipe.
static void same(const char *what, const uint8_t *p, size_t n, bool write)
{
	int pipe_fd[2];

	errno = 4711;
	bool got = ds_touchable(p, n, write);
	CHECK(errno == 4711, "%s: errno has changed", what);
	if (pipe(pipe_fd) < 0)
		exit(1);
	fcntl(pipe_fd[1], F_SETPIPE_SZ, 1 << 20);
	bool want;
	if (write) {
		uint8_t *bytes = calloc(1, n);
		ds_syscall(SYS_write, pipe_fd[1], bytes, n);
		free(bytes);
		want = ds_syscall(SYS_read, pipe_fd[0], p, n) == (long)n;
	} else {
		want = ds_syscall(SYS_write, pipe_fd[1], p, n) == (long)n;
	}
	REAL(close, pipe_fd[0]);
	REAL(close, pipe_fd[1]);
	CHECK(got == want, "%s: %d, the kernel says %d", what, got, want);
}

static void both(const char *what, const uint8_t *p, size_t n)
{
	same(what, p, n, false);
	same(what, p, n, true);
	same(what, p, n, false); // by what was remembered
	same(what, p, n, true);
}

static void kinds(void)
{
	uint8_t *p = fresh(8 * PAGE, PROT_READ | PROT_WRITE), *bad = fresh(PAGE, PROT_NONE);
	int fd = memfd_create("short", 0);

	both("fresh", p, 8 * PAGE);
	both("NULL", NULL, 10);
	both("1", (uint8_t *)1, 10);
	both("the last byte of all", (uint8_t *)-1, 1);
	both("around the end", (uint8_t *)-5, 10);
	both("kernel", (uint8_t *)0xffff888000000000, 10);
	both("PROT_NONE", bad, 1);
	mprotect(p + 4 * PAGE, PAGE, PROT_READ);
	munmap(p + 6 * PAGE, PAGE);
	ds_memory_gone(p, 8 * PAGE);
	both("up to what is read-only", p + PAGE, 3 * PAGE);
	both("into it", p + 4 * PAGE - 1, 2);
	both("beyond it", p + 3 * PAGE, 3 * PAGE);
	both("the last byte", p + 6 * PAGE - 1, 1);
	both("one more", p + 6 * PAGE - 1, 2);
	both("behind the hole", p + 7 * PAGE, PAGE);
	both("the program's text", (uint8_t *)(uintptr_t)kinds, 10);

	if (fd < 0 || ftruncate(fd, PAGE) < 0)
		exit(1);
	uint8_t *m = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	both("a file", m, PAGE);
	both("behind its end", m, PAGE + 1); // a SIGBUS
	CHECK(ds_readable(NULL, 0) && ds_writable(NULL, 0), "nothing is anywhere");
}

// what is remembered ends when the program says so, however long the range
static void forgotten(void)
{
	static const size_t pages[] = {1, 2, 511, 512, 513, 3000};

	for (unsigned i = 0; i < sizeof pages / sizeof *pages; i++) {
		size_t n = pages[i] * PAGE;
		uint8_t *p = fresh(n, PROT_READ | PROT_WRITE);

		CHECK(ds_writable(p, n), "fresh");
		CHECK(ds_writable(p + n - 1, 1) && ds_page_known((uintptr_t)(p + n - 1) >> DS_PAGE_SHIFT, true), "the last page is known");
		mprotect(p, n, PROT_READ);
		ds_memory_gone(p, n);
		CHECK(ds_readable(p, n) && !ds_writable(p + n - 1, 1) && !ds_writable(p, 1), "read-only");
		munmap(p, n);
		ds_memory_gone(p, n);
		CHECK(!ds_readable(p, 1) && !ds_readable(p + n - 1, 1), "gone");
	}
	ds_memory_gone((void *)-1, 10);
	ds_memory_gone(NULL, 0);
}

// a page that was asked for is not asked for again
static void cheap(void)
{
	static uint8_t few[3][PAGE] __attribute__((aligned(4096)));

	for (int i = 0; i < 3; i++)
		CHECK(ds_writable(few[i], PAGE) && ds_page_known((uintptr_t)few[i] >> DS_PAGE_SHIFT, true), "%d", i);
	CHECK(ds_page_known((uintptr_t)few[0] >> DS_PAGE_SHIFT, false), "to be written: to be read as well");
}

int main(void)
{
	kinds();
	forgotten();
	cheap();
	printf("memory: %d failed\n", failures);
	return failures != 0;
}
