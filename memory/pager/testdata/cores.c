/* cores LIMIT: has memory that is elsewhere, and dumps core of up to so many bytes. */
#include <sys/resource.h>

#include "elsewhere.h"

enum { PAGES = 2048, SIZE = PAGES * P };

int main(int argc, char **argv)
{
	struct rlimit limit = {0, 0};

	limit.rlim_cur = limit.rlim_max = argc > 1 ? (rlim_t)atol(argv[1]) : 0;
	map_pressure();
	char *m = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (size_t i = 0; i < SIZE; i += P)
		m[i] = 1;
	if (!pushed(m, PAGES, PAGES / 8, 3000))
		return 3;
	if (setrlimit(RLIMIT_CORE, &limit) != 0)
		return 4;
	abort();
}
