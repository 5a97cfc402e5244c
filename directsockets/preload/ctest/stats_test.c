// The statistics: which entries connections have, one after another.
#include "harness.h"

#include "conn/stats.h"

#include <unistd.h>

enum { HEAD = 256, ENTRIES = 16384 };

static const struct ds_info info = {.addr = {{1}, {2}}, .port = {1000, 2000}};

// A connection that was direct, with what it has sent to the other end.
static struct ds_entry *direct(const struct ds_info *i)
{
	struct ds_entry *e = ds_stats_get(3, 0, i);

	CHECK(e, "no entry");
	if (!e)
		exit(1);
	ds_stats_direct(e, DS_PATH_MEMORY);
	__atomic_fetch_add(&e->counters[DS_C_SENT], 5, __ATOMIC_RELAXED);
	return e;
}

// How many entries a reader finds used, and of how many the mode is mode.
static int used(int mode, int *of)
{
	struct ds_entry e;
	int n = 0;

	*of = 0;
	for (int i = 0; i < ENTRIES; i++) {
		CHECK(pread(ds_stats_fd(), &e, sizeof e, HEAD + (off_t)i * (off_t)sizeof e) == (ssize_t)sizeof e, "entry %d", i);
		n += e.sequence != 0;
		*of += e.sequence != 0 && e.mode == mode;
	}
	return n;
}

// However many connections there have been, the table is used as far as there are some at a time.
static void one_after_another(void)
{
	struct ds_entry *open = direct(&info), *e;
	int sums, n;

	for (int i = 0; i < 2 * ENTRIES; i++)
		ds_stats_put(direct(&info), false);
	n = used(DS_MODE_SUM, &sums);
	CHECK(n == 3 && sums == 1, "%d entries are used, %d of them for sums", n, sums);
	CHECK(open->mode == DS_MODE_DIRECT && open->counters[DS_C_SENT] == 5, "the one that is open has changed");
	e = direct(&info);
	CHECK(e->counters[DS_C_SENT] == 5 && !e->summed && !e->off, "it begins with what was there");
	ds_stats_put(e, false);
	ds_stats_put(open, false);
}

// Those that are to be shown stay until all are used.
static void kept(void)
{
	struct ds_entry *first = direct(&info);
	int closed, n;

	ds_stats_put(first, true);
	for (int i = 0; i < 100; i++)
		ds_stats_put(direct(&info), true);
	n = used(DS_MODE_CLOSED, &closed);
	CHECK(n == 102 && closed == 101, "%d entries are used, %d of them of closed connections", n, closed);
	for (int i = 0; i < ENTRIES - 102; i++) {
		struct ds_entry *e = direct(&info);

		CHECK(e != first, "connection %d has the entry of one that is shown", i);
	}
	CHECK(direct(&info) == first, "the longest closed one is not the first to go");
	for (int i = 0; i < 100; i++)
		direct(&info);
	CHECK(!ds_stats_get(3, 0, &info), "an entry of an open connection");
}

// What no sum has room for stays in the entry.
static void many_ends(void)
{
	struct ds_info i = info;
	int closed, n;

	for (int k = 0; k < 300; k++) {
		i.addr[1][4] = (uint8_t)k;
		i.addr[1][5] = (uint8_t)(k >> 8);
		ds_stats_put(direct(&i), false);
	}
	n = used(DS_MODE_CLOSED, &closed);
	CHECK(n == 300 && closed == 44, "%d entries are used, %d of them of closed connections", n, closed);
}

int main(void)
{
	one_after_another();
	ds_stats_child();
	kept();
	ds_stats_child();
	many_ends();
	printf("stats: %d failed\n", failures);
	return failures != 0;
}
