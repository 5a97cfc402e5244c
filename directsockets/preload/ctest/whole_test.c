// Threads that share a connection and write records with calls that block: no record tears another,
// however full the connection is.
#include "ends.h"

#include <pthread.h>

enum { WRITERS = 2, PAUSE = 64 }; // the reader pauses after so many bytes of a record's length

static struct side client;
static size_t size;
static int records;

static void *writer(void *id)
{
	uint8_t *b = malloc(size);

	memset(b, (int)(intptr_t)id, size);
	for (int i = 0; i < records; i++)
		CHECK(put(&client, b, size, 0) == (ssize_t)size, "a part of %zu bytes: %s", size, strerror(errno));
	free(b);
	return NULL;
}

// Runs of one writer's bytes, in what the other end reads slowly, are whole records. False: a
// reader that stood still, on a busy machine, has had the writers go back to TCP, and the kernel
// tears.
static bool torn(size_t n, int count)
{
	static uint8_t b[1 << 18];
	pthread_t t[WRITERS];
	struct side s;
	size_t run = 0, left = n * (size_t)count * WRITERS;
	int parts = 0, last = 0;

	size = n;
	records = count;
	pair_up(&client, &s);
	for (intptr_t i = 0; i < WRITERS; i++)
		CHECK(pthread_create(&t[i], NULL, writer, (void *)(i + 1)) == 0, "thread");
	while (left) {
		ssize_t r = get(&s, b, n * 3 / 2 < sizeof b ? n * 3 / 2 : sizeof b, 0);

		CHECK(r > 0, "%zu bytes short: %s", left, strerror(errno));
		if (r <= 0)
			exit(1);
		left -= (size_t)r;
		for (ssize_t i = 0; i < r; i++, run++)
			if (b[i] != last) {
				parts += run % n != 0;
				run = 0;
				last = b[i];
			}
		if (left / (n * PAUSE) != (left + (size_t)r) / (n * PAUSE))
			usleep(100);
	}
	for (int i = 0; i < WRITERS; i++)
		pthread_join(t[i], NULL);
	bool direct = ds_direct(client.s) & 1;
	CHECK(parts == 0 || !direct, "%d torn of %d records of %zu bytes", parts, count * WRITERS, n);
	hang_up(&client);
	hang_up(&s);
	return direct;
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);

	static const struct {
		size_t n;
		int count;
	} sizes[] = {{121, 4000}, {400, 4000}, {480, 4000}, {5000, 2000}, {20000, 1000}, {100000, 200}};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		int try = 0;

		while (!torn(sizes[i].n, sizes[i].count) && ++try < 20)
			;
		CHECK(try < 20, "records of %zu bytes do not stay direct", sizes[i].n);
	}
	ends_stop(broker, path);
	printf("whole: %d failed\n", failures);
	return failures != 0;
}
