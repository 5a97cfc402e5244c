/* For programs that a pager may have: they wait until memory of theirs is elsewhere. */
#ifndef ELSEWHERE_H
#define ELSEWHERE_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { P = 4096, PRESSURE = 16 << 20 };

/* How many of so many pages are in memory. */
static int present(const void *m, int pages)
{
	uint64_t *entries = calloc((size_t)pages, sizeof *entries);
	int fd = open("/proc/self/pagemap", O_RDONLY), n = 0;
	ssize_t size = (ssize_t)((size_t)pages * sizeof *entries);

	if (!entries || fd < 0 || pread(fd, entries, (size_t)size, (off_t)((uintptr_t)m / P * 8)) != size) {
		perror("pagemap");
		exit(2);
	}
	close(fd);
	for (int i = 0; i < pages; i++)
		n += entries[i] >> 63 & 1;
	free(entries);
	return n;
}

static unsigned char *pressure;

/* Maps the memory that pushes other memory out. */
static void map_pressure(void)
{
	pressure = mmap(NULL, PRESSURE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pressure == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
}

/* With a pager, uses other memory until no more than most of the pages are here, or for so many
 * rounds. Returns whether that is so. */
static int pushed(const void *m, int pages, int most, int rounds)
{
	if (!getenv("EXNET_PAGER"))
		return 1;
	for (; present(m, pages) > most; rounds--) {
		if (!rounds)
			return 0;
		for (size_t i = 0; i < PRESSURE; i += P)
			pressure[i]++;
		usleep(1000);
	}
	return 1;
}

#endif
