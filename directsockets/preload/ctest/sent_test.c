// What a client says about its sends on TCP (SPEC 2.5), and what its server makes of that, true or
// not.
#include "ends.h"

#include "conn/inner.h"
#include "small_broker.h"

/* The word of a port as of t, by ds_ticks; made: nothing was sent. */
static uint64_t word(uint16_t port, uint64_t t, bool made)
{
	return t >> 5 << 17 | (uint64_t)made << 16 | port;
}

/* As a client says it by itself: on a direct connection, of one on TCP. */
static void true_words(void)
{
	struct side c, s, c2, s2;
	uint8_t b[8];

	pair_up(&c, &s);
	connect_to(&c2);
	accept_from(&s2);
	CHECK(ds_sent_before(s.s, s2.s) == DS_UNSAID, "said before anything was sent");
	put(&c, "a", 1, 0);
	CHECK(ds_sent_before(s.s, s2.s) == DS_AFTER, "nothing was sent");
	uint64_t begin = ds_ticks() & ~31ull;
	put(&c2, "b", 1, 0);
	uint64_t end = ds_ticks();
	CHECK(ds_sent_before(s.s, s2.s) == DS_AFTER, "said of what was sent later");
	put(&c, "c", 1, 0);
	uint64_t t = ds_sent_before(s.s, s2.s);
	CHECK(t >= begin && t <= end, "at %lu, not %lu to %lu", t, begin, end);
	CHECK(ds_sent_before(s2.s, s.s) == DS_UNSAID && ds_sent_before(c.s, s2.s) == DS_UNSAID, "of the wrong side");
	CHECK(get(&s2, b, 1, 0) == 1 && ds_sent_before(s.s, s2.s) == DS_AFTER, "of what was read");
	hang_up(&c2);
	hang_up(&s2);
	connect_to(&c2); // which has the first word now
	accept_from(&s2);
	put(&c, "d", 1, 0);
	CHECK(ds_sent_before(s.s, s2.s) == DS_AFTER, "of a new connection");
	hang_up(&c2);
	hang_up(&s2);
	hang_up(&c);
	hang_up(&s);
}

/* More connections on TCP than there are words: of one without a word nothing is known, of the
 * others what is true. */
static void many(void)
{
	enum { MANY = DS_SENT + 6 };
	struct side c, s, cs[MANY], ss[MANY];
	int unsaid = 0;

	pair_up(&c, &s);
	for (int i = 0; i < MANY; i++) {
		connect_to(&cs[i]);
		accept_from(&ss[i]);
	}
	for (int i = 0; i < MANY; i++)
		put(&cs[i], "x", 1, 0);
	put(&c, "y", 1, 0);
	for (int i = 0; i < MANY; i++) {
		uint64_t t = ds_sent_before(s.s, ss[i].s);
		CHECK(t != DS_AFTER, "%d was sent before", i);
		unsaid += t == DS_UNSAID;
	}
	CHECK(unsaid == MANY - DS_SENT, "%d without a word", unsaid);
	for (int i = 0; i < MANY; i++) {
		hang_up(&cs[i]);
		hang_up(&ss[i]);
	}
	hang_up(&c);
	hang_up(&s);
}

/* Words that a client makes up: never a time in the future, never a fault. */
static void false_words(void)
{
	struct side c, s, c2, s2;

	pair_up(&c, &s);
	connect_to(&c2);
	accept_from(&s2);
	uint16_t port = s2.s->info.port[0];
	uint64_t *said = c.s->seg.own->sent, now = ds_ticks();
	const uint64_t times[] = {now + 32, now + (1ull << 20), now + (1ull << 40), now * 2, now << 10, UINT64_MAX, 0, 1ull << 51};
	for (unsigned i = 0; i < sizeof times / sizeof *times; i++)
		for (int k = 0; k < DS_SENT; k++) {
			__atomic_store_n(&said[k], word(port, times[i], false), __ATOMIC_RELAXED);
			uint64_t t = ds_sent_before(s.s, s2.s);
			CHECK(t == DS_AFTER || t <= ds_ticks(), "%lu is in the future", t);
			__atomic_store_n(&said[k], 0, __ATOMIC_RELAXED);
		}
	for (int i = 0; i < 100000; i++) {
		uint64_t w = rnd();
		__atomic_store_n(&said[below(DS_SENT)], (w & ~0x1ffffull) | (uint64_t)below(2) << 16 | port, __ATOMIC_RELAXED);
		uint64_t t = ds_sent_before(s.s, s2.s);
		CHECK(t == DS_UNSAID || t == DS_AFTER || t <= ds_ticks(), "%lu is in the future", t);
	}
	hang_up(&c2);
	hang_up(&s2);
	hang_up(&c);
	hang_up(&s);
}

int main(void)
{
	char path[64];
	pid_t broker = ends_start(path, sizeof path);

	true_words();
	many();
	false_words();
	ends_stop(broker, path);
	printf("sent: %d failed\n", failures);
	return failures != 0;
}
