/* pingpong TASK N: spawns N copies of the program TASK, by its name, and plays ping-pong with each,
 * over a TCP connection between the two tasks (PvmRouteDirect). Each byte says where it belongs.
 * It prints half a round trip for each size, the median and the most, without the time that making
 * and checking the data takes, and at the end "N tasks: right". */
#include <pvm3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ASK = 1, ANSWER = 2, MOST = 1 << 20, ROUNDS = 200 };

static char data[MOST];

static int byte_at(int size, int round, int i) { return (i * 7 + size + round) & 255; }

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void put(int to, int tag, int size)
{
	pvm_initsend(PvmDataRaw);
	pvm_pkint(&size, 1, 1);
	pvm_pkbyte(data, size, 1);
	pvm_send(to, tag);
}

static int take(int from, int tag)
{
	int size = 0;

	pvm_recv(from, tag);
	pvm_upkint(&size, 1, 1);
	pvm_upkbyte(data, size, 1);
	return size;
}

/* Returns what it is sent, until that is nothing. */
static int echo(int parent)
{
	int size;

	do {
		size = take(parent, ASK);
		if (!size)
			gethostname(data, MOST);
		put(parent, ANSWER, size ? size : (int)strlen(data) + 1);
	} while (size);
	pvm_exit();
	return 0;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void play(int task)
{
	double times[ROUNDS];

	for (int size = 8; size <= MOST; size *= 8) {
		for (int round = 0; round < ROUNDS; round++) {
			double begin;
			int got;

			for (int i = 0; i < size; i++)
				data[i] = (char)byte_at(size, round, i);
			begin = now();
			put(task, ASK, size);
			memset(data, 0, (size_t)size);
			got = take(task, ANSWER);
			times[round] = (now() - begin) / 2 * 1e6;
			if (got != size)
				exit(1);
			for (int i = 0; i < size; i++)
				if ((data[i] & 255) != byte_at(size, round, i)) {
					printf("byte %d of %d in round %d is wrong\n", i, size, round);
					exit(1);
				}
		}
		qsort(times, ROUNDS, sizeof times[0], compare);
		printf("%d bytes: %.1f us, at most %.1f\n", size, times[ROUNDS / 2], times[ROUNDS - 1]);
	}
	put(task, ASK, 0);
	take(task, ANSWER);
	printf("task on %s: right\n", data);
}

int main(int argc, char **argv)
{
	int n = argc > 2 ? atoi(argv[2]) : 0, tasks[16], hosts = 0, formats;
	struct pvmhostinfo *info;

	pvm_setopt(PvmRoute, PvmRouteDirect);
	if (pvm_parent() >= 0)
		return echo(pvm_parent());
	if (n < 1 || n > 16) {
		fprintf(stderr, "usage: pingpong TASK N, with N from 1 to 16\n");
		return 2;
	}
	while (hosts < n) { /* their daemons may still be starting */
		pvm_config(&hosts, &formats, &info);
		usleep(10000);
	}
	if (pvm_spawn(argv[1], NULL, PvmTaskDefault, "", n, tasks) != n) {
		fprintf(stderr, "a task could not be started: %d\n", tasks[n - 1]);
		return 1;
	}
	for (int i = 0; i < n; i++)
		play(tasks[i]);
	printf("%d tasks: right\n", n);
	pvm_exit();
	return 0;
}
