/* forks WHO MIB MOST: fills MIB, and forks. WHO (parent or child) goes on when the other has ended,
 * checks all memory until no more than MOST MiB of it are here, and says ok. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t *m;
static size_t words;

static void check(void)
{
	for (size_t i = 0; i < words; i++)
		if (m[i] != i * 0x9e3779b97f4a7c15ULL + 1) {
			fprintf(stderr, "word %zu is %#lx\n", i, (unsigned long)m[i]);
			_exit(1);
		}
}

/* MiB of anonymous memory that this process has here. */
static long here(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long all = 0, resident = 0, files = 0;

	if (!f || fscanf(f, "%ld %ld %ld", &all, &resident, &files) != 3)
		_exit(2);
	fclose(f);
	return (resident - files) >> 8;
}

int main(int argc, char **argv)
{
	int ends[2], parent = argc > 3 && strcmp(argv[1], "parent") == 0;
	long most = argc > 3 ? atol(argv[3]) : 0;
	char c;

	words = (size_t)(argc > 3 ? atoi(argv[2]) : 1) << 17;
	m = malloc(words * sizeof *m);
	if (!m || pipe(ends) != 0)
		return 2;
	for (size_t i = 0; i < words; i++)
		m[i] = i * 0x9e3779b97f4a7c15ULL + 1;
	pid_t pid = fork();

	if (pid < 0)
		return 2;
	if ((pid > 0) != parent) { /* ends, after a look */
		check();
		return 0;
	}
	close(ends[1]);
	if (read(ends[0], &c, 1) != 0) /* until the other has ended */
		return 2;
	for (int i = 0; i < 600; i++) {
		check();
		if (here() <= most) {
			puts("ok");
			return 0;
		}
		usleep(100000);
	}
	fprintf(stderr, "%ld MiB are here\n", here());
	return 1;
}
