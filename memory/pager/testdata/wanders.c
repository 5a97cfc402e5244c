/* wanders MIB: reads pages of so many MiB at random, until it is killed. */
#include <stdint.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	size_t words = (size_t)atoi(argc > 1 ? argv[1] : "1") << 17;
	volatile uint64_t *m = malloc(words * sizeof *m);
	uint64_t x = 88172645463325252U, all = 0;

	if (!m)
		return 2;
	for (size_t i = 0; i < words; i++)
		m[i] = i + 1;
	for (;;) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		all += m[x % words];
	}
	return (int)all;
}
