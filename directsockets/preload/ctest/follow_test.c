// Several threads poll one connection: one leads, and has the bell; those that follow hear of it
// when it wakes.
#include "ends.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

enum { LONG = 60000 }; // ms

static sem_t armed, over;

// Leads until it may end.
static void *leader(void *side)
{
	struct side *a = side;
	bool had = ds_arm(a->s, POLLIN);

	CHECK(had, "another leads");
	sem_post(&armed);
	sem_wait(&over);
	ds_disarm(a->s, had);
	return NULL;
}

// Is there anything at the wakefd within ms?
static int heard(struct side *a, int ms)
{
	struct pollfd p = {ds_wakefd(a->s), POLLIN, 0};

	return poll(&p, 1, ms);
}

static void follow(struct side *a, bool late)
{
	pthread_t t;

	pthread_create(&t, NULL, leader, a);
	sem_wait(&armed);
	bool had = ds_arm(a->s, POLLIN);
	CHECK(!had, "two lead");
	if (!late) {
		CHECK(ds_follow(a->s), "the leader is another process's");
		CHECK(heard(a, 0) == 0, "told about nothing");
	}
	sem_post(&over);
	pthread_join(t, NULL);
	if (late)
		ds_follow(a->s);
	CHECK(heard(a, LONG) == 1, "not told");
	ds_rung(a->s);
	CHECK(heard(a, 0) == 1, "what one has heard another does not");
	ds_follow_end(a->s);
	ds_disarm(a->s, had);
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);
	struct side c, s;

	sem_init(&armed, 0, 0);
	sem_init(&over, 0, 0);
	pair_up(&c, &s);
	for (int i = 0; i < 100; i++)
		follow(&s, i % 2);
	hang_up(&c);
	hang_up(&s);
	ends_stop(broker, path);
	printf("follow: %d failed\n", failures);
	return failures != 0;
}
