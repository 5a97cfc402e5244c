/* Reads a lease by GETs of 1 MiB from several threads. usage: gets THREADS SECONDS; prints MB/s. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "exnmem.h"

enum { SIZE = 64 << 20, PIECE = 1 << 20 };

static struct exnmem *lease;
static atomic_bool stop;
static atomic_ullong pieces;

static void *reader(void *arg) {
	char *to = malloc(PIECE);
	for (unsigned i = (unsigned)(size_t)arg; to && !stop; i++) {
		if (exnmem_read(lease, to, PIECE, (uint64_t)(i % (SIZE / PIECE)) * PIECE) < 0) {
			perror("gets");
			exit(1);
		}
		pieces++;
	}
	free(to);
	return NULL;
}

int main(int argc, char **argv) {
	char why[256];
	struct exnmem_config c = {.node = -1, .size = SIZE};
	if (argc != 3)
		return 2;
	lease = exnmem_borrow(&c, why, sizeof(why));
	if (!lease || exnmem_watch(lease) < 0) {
		fprintf(stderr, "gets: %s\n", lease ? "no thread" : why);
		return 1;
	}
	int n = atoi(argv[1]), seconds = atoi(argv[2]);
	pthread_t all[64];
	for (int i = 0; i < n && i < 64; i++)
		if (pthread_create(&all[i], NULL, reader, (void *)(size_t)(i * 7)))
			return 1;
	nanosleep(&(struct timespec){.tv_sec = seconds}, NULL);
	stop = true;
	for (int i = 0; i < n && i < 64; i++)
		pthread_join(all[i], NULL);
	printf("%.0f\n", (double)pieces * PIECE / 1e6 / seconds);
	exnmem_return(lease);
	return 0;
}
