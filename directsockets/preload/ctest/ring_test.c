// The ring of the outbound direction: which part of it is in use, where a copy lies in it, and
// which way it goes there.
#include "harness.h"

#include "segment/txring.h"

#include <sched.h>
#include <string.h>

// ---- the whole ring is used once there is much to send

enum { RING = 2 << 20 };

struct widening {
	struct pair p;
	struct end *a, *b;
	uint64_t sent, got;
	uint8_t *buf;
};

static void begin(struct widening *w)
{
	uint64_t carried;

	memset(w, 0, sizeof *w);
	make_pair(&w->p, 128, RING);
	w->a = &w->p.end[0];
	w->b = &w->p.end[1];
	w->buf = malloc(RING);
	CHECK(ds_tx_promote(&w->a->seg, &w->a->tx, &w->a->attention, 0) == 0 && ds_rx_promoted(&w->b->seg, &w->b->rx, &carried) == 1, "promoted");
}

// Sends n bytes, or what the ring takes of them.
static size_t give(struct widening *w, size_t n)
{
	struct iovec v;
	struct ds_cursor c = cursor_of(&v, w->buf, n);
	ssize_t r;

	for (size_t i = 0; i < n; i++)
		w->buf[i] = nth_byte(w->sent + i);
	while (c.left && (r = ds_tx_send(&w->a->seg, &w->a->tx, &w->a->attention, &c)) > 0)
		w->sent += (uint64_t)r;
	return n - c.left;
}

static void take(struct widening *w, size_t n)
{
	while (n) {
		struct iovec v;
		struct ds_cursor c = cursor_of(&v, w->buf, n);
		ssize_t r = ds_rx_recv(&w->b->seg, &w->b->rx, &w->b->attention, &c, false, false);

		CHECK(r > 0, "recv: %zd", r);
		if (r <= 0)
			exit(1);
		for (ssize_t i = 0; i < r; i++, w->got++)
			CHECK(w->buf[i] == nth_byte(w->got), "byte %llu", (unsigned long long)w->got);
		n -= (size_t)r;
	}
}

static void end(struct widening *w)
{
	take(w, w->sent - w->got);
	free(w->buf);
	free_pair(&w->p);
}

static void widens(void)
{
	struct widening w;

	begin(&w); // nobody reads
	CHECK(give(&w, 3 << 19) == 3 << 19 && give(&w, RING) == RING / 4, "%llu bytes fit", (unsigned long long)w.sent);
	end(&w);
	begin(&w); // messages that are answered
	for (int i = 0; i < 100; i++) {
		CHECK(give(&w, 200000) == 200000 && w.a->tx.span < RING, "message %d: all is in use", i);
		take(&w, 200000);
	}
	end(&w);
	begin(&w); // a stream: never empty, never half full
	give(&w, 3000);
	while (w.sent < 16 << 20) {
		CHECK(give(&w, 50000) == 50000, "no room");
		take(&w, 50000);
		CHECK(w.sent > 8 << 20 || w.a->tx.span < RING, "wide after %llu bytes", (unsigned long long)w.sent);
	}
	CHECK(w.a->tx.span == RING, "not wide");
	end(&w);
	cpu_set_t all, one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	CHECK(sched_getaffinity(0, sizeof all, &all) == 0 && sched_setaffinity(0, sizeof one, &one) == 0, "affinity");
	begin(&w); // the same on one CPU
	ds_seg_cpu(&w.b->seg, (uint32_t)sched_getcpu() + 1);
	give(&w, 3000);
	while (w.sent < 16 << 20 && give(&w, 50000) == 50000)
		take(&w, 50000);
	CHECK(w.sent >= 16 << 20 && w.a->tx.span < RING, "wide after %llu bytes", (unsigned long long)w.sent);
	sched_setaffinity(0, sizeof all, &all);
	end(&w);
	begin(&w); // what is unread at the end of the part in use stays there
	give(&w, 4096);
	for (size_t n = DS_NARROW - 4096 - 1024; n; n -= n < 65536 ? n : 65536) {
		give(&w, n < 65536 ? n : 65536);
		take(&w, w.sent - w.got - 1024);
	}
	give(&w, 1024);
	take(&w, w.sent - w.got - 1024);
	CHECK(give(&w, DS_NARROW - 2048) == DS_NARROW - 2048 && w.a->tx.span == DS_NARROW, "the second lap");
	CHECK(give(&w, 3000) == 0 && w.a->tx.span == DS_NARROW, "3000 bytes find room");
	end(&w);
}

// Eight slow copies have the next ones go past the caches. After some time one lap goes through
// them untimed, and the copy after it says whether the next ones go past them again. The ring's
// first lap is not timed.
static void ways(void)
{
	enum { LAP = 1 << 20, PAST = 64 << 20, N = 32 << 10 };
	static uint8_t out[N], in[sizeof out];
	static const struct {
		size_t n;
		uint32_t way, slow;
		int64_t left;
		int then; // the way after that; -1: the copy is timed
		int64_t then_left;
	} of[] = {
		{N, RING_PAST, 8, PAST, RING_PAST, PAST - N}, {N, RING_PAST, 8, 1, RING_AGAIN, LAP},
		{N, RING_AGAIN, 8, LAP, RING_AGAIN, LAP - N}, {N, RING_AGAIN, 8, N, RING_THROUGH, 0},
		{N, RING_THROUGH, 7, 0, -1, 0}, {N, RING_THROUGH, 0, 0, -1, 0},
		{8 << 10, RING_PAST, 8, 1, RING_PAST, 1},
	};
	uint64_t carried;
	struct pair p;

	make_pair(&p, 128, 1 << 20);
	struct end *a = &p.end[0], *b = &p.end[1];
	CHECK(ds_tx_promote(&a->seg, &a->tx, &a->attention, 0) == 0 && ds_rx_promoted(&b->seg, &b->rx, &carried) == 1, "promoted");
	for (int i = 0; i < LAP / N; i++) {
		struct iovec v;
		struct ds_cursor c = cursor_of(&v, out, N);

		a->tx.slow = 7;
		CHECK(ds_tx_send(&a->seg, &a->tx, &a->attention, &c) == N && a->tx.slow == 7 && a->tx.way == RING_THROUGH, "the first lap is timed");
		c = cursor_of(&v, in, N);
		CHECK(ds_rx_recv(&b->seg, &b->rx, &b->attention, &c, false, false) == N, "the first lap");
	}
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		struct iovec v;
		struct ds_cursor c = cursor_of(&v, out, of[i].n);

		for (size_t k = 0; k < of[i].n; k++)
			out[k] = nth_byte(i * 77 + k);
		a->tx.way = of[i].way;
		a->tx.slow = of[i].slow;
		a->tx.left = of[i].left;
		CHECK(ds_tx_send(&a->seg, &a->tx, &a->attention, &c) == (ssize_t)of[i].n && !c.left, "%zu: send", i);
#if !defined(__x86_64__)
		CHECK(a->tx.way == of[i].way && a->tx.slow == of[i].slow && a->tx.left == of[i].left, "%zu: timed", i);
#else
		struct ds_tx *t = &a->tx;
		if (of[i].then != -1)
			CHECK(t->way == (uint32_t)of[i].then && t->left == of[i].then_left, "%zu: way %u, left %lld", i, t->way, (long long)t->left);
		else // it was fast, or not: other work decides
			CHECK((t->way == RING_THROUGH && (t->slow == of[i].slow / 2 || t->slow == of[i].slow + 1)) || (of[i].slow == 7 && t->way == RING_PAST && t->left == PAST),
			      "%zu: way %u, slow %u, left %lld", i, t->way, t->slow, (long long)t->left);
#endif
		c = cursor_of(&v, in, sizeof in);
		CHECK(ds_rx_recv(&b->seg, &b->rx, &b->attention, &c, false, false) == (ssize_t)of[i].n, "%zu: recv", i);
		CHECK(memcmp(in, out, of[i].n) == 0, "%zu: other bytes", i);
	}
	free_pair(&p);
}

// Where there is said to be room, something can be sent: whatever the window is, where the next
// copy begins in the ring, and how much is under way.
static void room_is_room(void)
{
	static const uint64_t windows[] = {8192, 9000, 16384, 20000, 32768, RING};
	struct widening w;

	for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
		begin(&w);
		w.a->seg.window = windows[k];
		for (int i = 0; i < 3000; i++) {
			size_t n = 1 + below(9000);
			int room = ds_tx_room(&w.a->seg, &w.a->tx);
			uint64_t before = w.sent;

			CHECK(room == 1 || w.sent > w.got, "window %llu: no room, and nothing is under way", (unsigned long long)windows[k]);
			give(&w, n);
			CHECK(room != 1 || w.sent > before, "window %llu: room, and not for %zu bytes, %llu under way", (unsigned long long)windows[k], n,
			      (unsigned long long)(before - w.got));
			take(&w, below((unsigned)(w.sent - w.got) + 1));
		}
		end(&w);
	}
}

// A copy is right at all distances, also where it goes in pieces, and writes nothing beside.
static void copies(void)
{
	enum { PAGES = 4 * 4096 };
	static uint8_t from[PAGES] __attribute__((aligned(4096))), to[2 * PAGES] __attribute__((aligned(4096)));
	static const size_t sizes[] = {1, 511, 512, DS_FEW - 1, DS_FEW, DS_FEW + 1, 2 * DS_FEW, 2 * DS_FEW + 1, 4096, PAGES - 7};

	for (int i = 0; i < PAGES; i++)
		from[i] = (uint8_t)(i % 251 + 1);
	for (int lag = 0; lag < 18; lag++)
		for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
			size_t n = sizes[k];

			memset(to, 0, sizeof to);
			ds_copy(to + 4096 + lag, from, n);
			CHECK(!memcmp(to + 4096 + lag, from, n), "%zu bytes, %d behind: not the same", n, lag);
			CHECK(!to[4095 + lag] && !to[4096 + lag + (int)n], "%zu bytes, %d behind: more was written", n, lag);
		}
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	copies();
	widens();
	room_is_room();
	ways();
	printf("ring: %d failed\n", failures);
	return failures != 0;
}
