// A peer that falls back, and one that writes anything into the segment.
#include "harness.h"

#include <sys/mman.h>

// ---- falling back: what was not consumed comes back, whole and in order

struct sink {
	uint8_t *p;
	size_t n, stop;
};

static ssize_t into(void *arg, const void *p, size_t n)
{
	struct sink *k = arg;

	if (!k->stop--) { // not now
		k->stop = below(4);
		return -1;
	}
	n = 1 + below(n);
	memcpy(k->p + k->n, p, n);
	k->n += n;
	return (ssize_t)n;
}

static void freezes(void)
{
	static uint8_t buf[1 << 21], back[1 << 21];
	struct pair p;
	struct iovec v;
	uint64_t carried, slot, off, sent = 0, got = 0;
	bool ended = false;
	int r;

	make_pair(&p, 64, 65536);
	struct end *a = &p.end[0], *b = &p.end[1];
	ds_tx_promote(&a->seg, &a->tx, &a->attention, 0);
	if (below(8))
		ds_rx_promoted(&b->seg, &b->rx, &carried);
	for (int i = (int)below(60); i--;) {
		size_t n = 1 + below(below(2) ? 400 : 30000);
		struct ds_cursor c = cursor_of(&v, buf, n);
		for (size_t k = 0; k < n; k++)
			buf[k] = nth_byte(sent + k);
		ssize_t done = ds_tx_send(&a->seg, &a->tx, &a->attention, &c);
		sent += done > 0 ? (uint64_t)done : 0;
		if (b->rx.pos[b->rx.cur].count && below(2)) {
			c = cursor_of(&v, buf, 1 + below(40000));
			done = ds_rx_recv(&b->seg, &b->rx, &b->attention, &c, false, false);
			for (ssize_t k = 0; k < done; k++)
				CHECK(buf[k] == nth_byte(got + (uint64_t)k), "byte %zd", k);
			got += done > 0 ? (uint64_t)done : 0;
		}
	}
	CHECK(ds_seg_fall_back(&b->seg, &b->rx, &b->attention) == 1, "fall back");
	struct ds_cursor c = cursor_of(&v, buf, 1);
	CHECK(ds_tx_send(&a->seg, &a->tx, &a->attention, &c) == DS_STOPPED, "sends to a peer that has fallen back");
	CHECK(ds_tx_return_begin(&a->seg, &a->tx, &a->attention, &slot, &off) == 0, "return");
	struct sink k = {back, 0, below(4)};
	while ((r = ds_tx_return(&a->seg, &a->tx, &slot, &off, into, &k, &ended)) == DS_AGAIN)
		;
	CHECK(r == 0 && !ended && k.n == sent - got, "%d: %zu bytes back of %llu", r, k.n, (unsigned long long)(sent - got));
	for (size_t i = 0; i < k.n; i++)
		CHECK(back[i] == nth_byte(got + i), "byte %zu came back wrong", i);
	free_pair(&p);
}

// ---- a peer that writes anything anywhere on its side: no fault, no reading or writing elsewhere

/* Writes anything into a slot of the 16 that e receives in, with a lap that is right. */
static void any_slot(const struct end *e, uint8_t *queue)
{
	uint64_t n = below(16), count = e->rx.pos[e->rx.cur & 1].count, lap = (count >> 4) + 1;
	uint64_t x = lap | below(10) << 32 | (below(3) ? (uint64_t)28 : below(130)) << 40;

	n = below(3) ? count % 16 : n;
	uint32_t len = (uint32_t)(below(2) ? below(70000) : rnd());
	uint64_t at = below(2) ? below(70000) : rnd(), adv = below(2) ? below(70000) : rnd();
	memcpy(queue + n * DS_SLOT + 12, &len, 4);
	queue[n * DS_SLOT + 8] = (uint8_t)(below(3) ? 1 : below(4));
	memcpy(queue + n * DS_SLOT + 16, &at, 8);
	memcpy(queue + n * DS_SLOT + 24, &adv, 8);
	memcpy(queue + n * DS_SLOT, &x, 8);
}

/* Counts what a peer that returns to TCP has left; then the queue is another, and e goes on. */
static void left(struct end *e, uint8_t *queue, uint64_t far)
{
	uint64_t carried = 0, n; // set if PROMOTE has not been read yet

	if (ds_rx_left(&e->seg, &e->rx, &carried, &n) != 1)
		return;
	CHECK(n <= 16 * (uint64_t)DS_MAX_RMA && carried <= INT64_MAX, "%llu are left after %llu", (unsigned long long)n, (unsigned long long)carried);
	any_slot(e, queue);
	ds_rx_forward(&e->seg, &e->rx, below(2) ? below(n + 1) : far);
}

static void hostile(void)
{
	static uint8_t buf[1 << 16];
	struct pair p;
	struct iovec v;
	uint64_t carried, slot, off;
	bool ended;
	size_t rings;

	make_pair(&p, 16, 65536);
	ds_seg_size(16, 65536, &rings);
	struct end *e = &p.end[0];
	uint8_t *queue = p.mem + DS_QUEUES + 16 * DS_SLOT, *block = p.mem + 2 * DS_CTRL;
	if (below(4)) {
		ds_tx_promote(&e->seg, &e->tx, &e->attention, 0);
		memcpy(queue, (uint64_t[]){0x0000080700000001, below(100)}, 16);
	}
	bool promoted = ds_rx_promoted(&e->seg, &e->rx, &carried) == 1;
	for (int i = 0; i < 200; i++) {
		uint64_t x = rnd() >> below(64);
		switch (below(14)) {
		case 0:
			memcpy(block + 8 * below(64), &x, 8);
			break;
		case 1:
			x = below(40);
			memcpy(block + 8 * below(2), &x, 8);
			break;
		case 2: // anything in a slot, with a lap that is right
		case 3:
			any_slot(e, queue);
			break;
		case 4: // our own queue, which it can reach too
			memcpy(p.mem + DS_QUEUES + 8 * below(256), &x, 8);
			break;
		case 5:
			p.mem[DS_QUEUES - 1 - below(DS_QUEUES)] = (uint8_t)x;
			break;
		case 6:
			if (promoted) {
				struct ds_cursor c = cursor_of(&v, buf, 1 + below(sizeof buf));
				ds_rx_recv(&e->seg, &e->rx, &e->attention, &c, below(2), below(2));
			}
			break;
		case 7: {
			struct ds_cursor c = cursor_of(&v, buf, 1 + below(sizeof buf));
			ds_tx_send(&e->seg, &e->tx, &e->attention, &c);
			break;
		}
		case 8:
			ds_rx_look(&e->seg, &e->rx);
			ds_rx_readable(&e->seg, &e->rx);
			ds_tx_room(&e->seg, &e->tx);
			ds_tx_queued(&e->seg, &e->tx);
			break;
		case 9: {
			struct sink k = {buf, 0, below(4)};
			if (ds_tx_return_begin(&e->seg, &e->tx, &e->attention, &slot, &off) == 0)
				for (int n = 0; n < 30; n++) {
					k.n = 0;
					ds_tx_return(&e->seg, &e->tx, &slot, &off, into, &k, &ended);
				}
			break;
		}
		case 10:
			ds_tx_recover(&e->seg, &e->tx, &e->attention);
			break;
		case 11:
			ds_attend(&e->seg, &e->attention, 1u << below(7), 0);
			break;
		case 12:
			ds_seg_fall_back(&e->seg, &e->rx, &e->attention);
			break;
		case 13:
			left(e, queue, x);
			break;
		}
	}
	free_pair(&p);
}

// A PROMOTE whose bytes of the shadow cannot be, so that what is due after them wraps: a breach,
// for who waits for it and for who has fallen back before. Those that can be are taken.
static void impossible_promote(void)
{
	static const uint64_t said[] = {0, 77, INT64_MAX, 1ull << 63, UINT64_MAX - 4, UINT64_MAX};

	for (unsigned i = 0; i < sizeof said / sizeof *said; i++) {
		int want = said[i] <= INT64_MAX ? 1 : DS_BREACH;
		for (int fallen_back = 0; fallen_back < 2; fallen_back++) {
			struct pair p;
			uint64_t carried = 0, n = 0;

			make_pair(&p, 16, 65536);
			struct end *e = &p.end[0];
			uint8_t *queue = p.mem + DS_QUEUES + 16 * DS_SLOT;
			memcpy(queue, (uint64_t[]){0x0000080700000001, said[i]}, 16);
			memcpy(queue + DS_SLOT, (uint64_t[]){0x0000640100000001}, 8); // VELO of 100 bytes
			if (fallen_back)
				CHECK(ds_seg_fall_back(&e->seg, &e->rx, &e->attention) == 1, "fall back");
			int got = fallen_back ? ds_rx_left(&e->seg, &e->rx, &carried, &n) : ds_rx_promoted(&e->seg, &e->rx, &carried);
			CHECK(got == want, "PROMOTE after %llu bytes, fallen back %d: %d", (unsigned long long)said[i], fallen_back, got);
			CHECK(want != 1 || !fallen_back || n == 100, "%llu left", (unsigned long long)n);
			free_pair(&p);
		}
	}
}

// how often
#ifdef __SANITIZE_THREAD__
#define ROUNDS 100
#else
#define ROUNDS 2000
#endif

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	int rounds = argc > 1 ? atoi(argv[1]) : ROUNDS;

	impossible_promote();
	for (int i = 0; i < rounds / 4; i++)
		freezes();
	for (int i = 0; i < rounds; i++)
		hostile();
	printf("breach: %d failed\n", failures);
	return failures != 0;
}
