/* Fills as many MiB as it is told to, and checks them in rows, forwards, backwards and in steps;
 * with "forwards" only forwards, and with "forever" until it is killed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong(const uint64_t *m, size_t i)
{
	if (m[i] == i * 0x9e3779b97f4a7c15ULL + 1)
		return 0;
	fprintf(stderr, "word %zu is %#lx\n", i, (unsigned long)m[i]);
	return 1;
}

int main(int argc, char **argv)
{
	size_t words = (size_t)atoi(argc > 1 ? argv[1] : "1") << 17;
	uint64_t *m = malloc(words * sizeof *m);
	int forwards = argc > 2, forever = forwards && strcmp(argv[2], "forever") == 0;

	if (!m)
		return 2;
	for (size_t i = 0; i < words; i++)
		m[i] = i * 0x9e3779b97f4a7c15ULL + 1;
	do
		for (size_t i = 0; i < words; i++)
			if (wrong(m, i))
				return 1;
	while (forever);
	for (size_t i = forwards ? 0 : words; i-- > 0;)
		if (wrong(m, i))
			return 1;
	for (size_t step = forwards ? 8192 : 512; step < 8192; step += 1536)
		for (size_t i = 0; i < words; i += step)
			if (wrong(m, i))
				return 1;
	puts("ok");
	return 0;
}
