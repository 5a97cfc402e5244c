/* Reads memory, which has the kernel's page of zeros then, has more of its own so that it is paged,
 * and writes to the first: that leaves, too, and is right when it comes back. */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096, READ = 16 * MIB, OWN = 2 * MIB };

static long here(void)
{
	long all = 0, files = 0, size;
	FILE *f = fopen("/proc/self/statm", "r");

	if (!f || fscanf(f, "%ld %ld %ld", &size, &all, &files) != 3)
		return -1;
	fclose(f);
	return (all - files) * PAGE;
}

static volatile unsigned char *area(size_t n)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

int main(void)
{
	volatile unsigned char *read = area(READ), *own = area(OWN);
	unsigned sum = 0;

	if (!read || !own)
		return 2;
	for (size_t i = 0; i < READ; i += PAGE)
		sum += read[i];
	for (size_t i = 0; i < OWN; i += PAGE)
		own[i] = 1;
	for (int i = 0; here() > OWN; i++, usleep(1000)) /* the pager has begun */
		if (i == 30000)
			return 3;
	for (size_t i = 0; i < READ; i += PAGE)
		read[i] = (unsigned char)(1 + i / PAGE);
	for (int i = 0; here() > READ / 2; i++, usleep(1000))
		if (i == 30000) {
			fprintf(stderr, "%ld bytes are here\n", here());
			return 1;
		}
	for (size_t i = 0; i < READ; i += PAGE)
		if (read[i] != (unsigned char)(1 + i / PAGE)) {
			fprintf(stderr, "page %zu is wrong\n", i / PAGE);
			return 1;
		}
	puts(sum ? "no zeros" : "ok");
	return 0;
}
