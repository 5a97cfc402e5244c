// Two ends of a segment: random operations by two threads, and a peer that writes anything.
#include "harness.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { MAX = 200000 };

static uint8_t byte_at(uint64_t i) { return (uint8_t)(i * 131 + (i >> 9)); }

// ---- streams: what is sent arrives, in order, whatever the sizes

struct stream {
	struct end *e;
	uint64_t total;
	uint64_t state;
};

static uint64_t next(struct stream *s, uint64_t n)
{
	s->state ^= s->state << 13;
	s->state ^= s->state >> 7;
	s->state ^= s->state << 17;
	return s->state % n;
}

static size_t some(struct stream *s, uint64_t left)
{
	size_t n = next(s, 3) ? 1 + next(s, 600) : 1 + next(s, MAX - 1);
	return n < left ? n : left;
}

static void *sends(void *arg)
{
	struct stream *s = arg;
	uint8_t *buf = malloc(MAX);
	uint64_t done = 0;

	CHECK(ds_tx_promote(&s->e->seg, &s->e->tx, &s->e->attention, 7) == 0, "promote");
	while (done < s->total) {
		size_t n = some(s, s->total - done), cut = next(s, n + 1);
		struct iovec v[3] = {{buf, cut}, {buf, 0}, {buf + cut, n - cut}};
		struct ds_cursor c = {.v = v, .n = 3, .left = n};

		for (size_t i = 0; i < n; i++)
			buf[i] = byte_at(done + i);
		s->e->tx.slow = (uint32_t)next(s, 9); // through the caches or past them
		s->e->tx.past = (int32_t)next(s, 2) * MAX;
		while (c.left) {
			ssize_t r = ds_tx_send(&s->e->seg, &s->e->tx, &s->e->attention, &c);
			if (r == DS_AGAIN) {
				sched_yield();
				continue;
			}
			CHECK(r > 0, "send: %zd", r);
			if (r < 0)
				exit(1);
		}
		done += n;
	}
	int r;
	while ((r = ds_tx_end(&s->e->seg, &s->e->tx, &s->e->attention, DS_SHUTDOWN)) == DS_AGAIN)
		sched_yield();
	CHECK(r == 0, "shutdown: %d", r);
	free(buf);
	return NULL;
}

static void *receives(void *arg)
{
	struct stream *s = arg;
	uint8_t *buf = malloc(MAX);
	uint64_t done = 0, carried;
	int got;

	while (!(got = ds_rx_promoted(&s->e->seg, &s->e->rx, &carried)))
		sched_yield();
	CHECK(got == 1 && carried == 7, "promoted: %d", got);
	for (;;) {
		size_t n = some(s, MAX);
		struct iovec v[2] = {{buf, n / 3}, {buf + n / 3, n - n / 3}};
		struct ds_cursor c = {.v = v, .n = 2, .left = n};
		bool peek = next(s, 5) == 0;
		ssize_t r = ds_rx_recv(&s->e->seg, &s->e->rx, &s->e->attention, &c, peek, false);

		if (r == DS_AGAIN) {
			sched_yield();
			continue;
		}
		if (r == DS_END)
			break;
		CHECK(r > 0, "recv: %zd", r);
		if (r < 0)
			exit(1);
		for (ssize_t i = 0; i < r; i++)
			if (buf[i] != byte_at(done + (uint64_t)i)) {
				CHECK(false, "byte %llu", (unsigned long long)(done + (uint64_t)i));
				exit(1);
			}
		if (!peek)
			done += (uint64_t)r;
	}
	CHECK(done == s->total, "%llu of %llu bytes", (unsigned long long)done, (unsigned long long)s->total);
	free(buf);
	return NULL;
}

static void streams(uint32_t slots, uint64_t ring, uint64_t total)
{
	struct pair p;
	pthread_t t[4];
	struct stream s[4];

	make_pair(&p, slots, ring);
	for (int i = 0; i < 4; i++) {
		s[i] = (struct stream){&p.end[(i >> 1) ^ (i & 1)], total, rnd() | 1};
		pthread_create(&t[i], NULL, i & 1 ? receives : sends, &s[i]);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	free_pair(&p);
}

// ---- freezing: what was not consumed comes back, whole and in order

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
			buf[k] = byte_at(sent + k);
		ssize_t done = ds_tx_send(&a->seg, &a->tx, &a->attention, &c);
		sent += done > 0 ? (uint64_t)done : 0;
		if (b->rx.pos[b->rx.cur].count && below(2)) {
			c = cursor_of(&v, buf, 1 + below(40000));
			done = ds_rx_recv(&b->seg, &b->rx, &b->attention, &c, false, false);
			for (ssize_t k = 0; k < done; k++)
				CHECK(buf[k] == byte_at(got + (uint64_t)k), "byte %zd", k);
			got += done > 0 ? (uint64_t)done : 0;
		}
	}
	CHECK(ds_rx_freeze(&b->seg, &b->rx, &b->attention) == 1, "freeze");
	struct ds_cursor c = cursor_of(&v, buf, 1);
	CHECK(ds_tx_send(&a->seg, &a->tx, &a->attention, &c) == DS_STOPPED, "sends to a frozen peer");
	CHECK(ds_tx_roll_begin(&a->seg, &a->tx, &a->attention, &slot, &off) == 0, "roll");
	struct sink k = {back, 0, below(4)};
	while ((r = ds_tx_roll(&a->seg, &a->tx, &slot, &off, into, &k, &ended)) == DS_AGAIN)
		;
	CHECK(r == 0 && !ended && k.n == sent - got, "%d: %zu bytes back of %llu", r, k.n, (unsigned long long)(sent - got));
	for (size_t i = 0; i < k.n; i++)
		CHECK(back[i] == byte_at(got + i), "byte %zu came back wrong", i);
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
		switch (below(12)) {
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
			if (ds_tx_roll_begin(&e->seg, &e->tx, &e->attention, &slot, &off) == 0)
				for (int n = 0; n < 30; n++) {
					k.n = 0;
					ds_tx_roll(&e->seg, &e->tx, &slot, &off, into, &k, &ended);
				}
			break;
		}
		case 10:
			ds_tx_recover(&e->seg, &e->tx);
			break;
		case 11:
			ds_attend(&e->seg, &e->attention, 1u << below(7), 0);
			break;
		}
	}
	free_pair(&p);
}

// ---- few pages: what is sent slowly does not fill the queues

static long allocated(int fd)
{
	struct stat st;

	CHECK(fstat(fd, &st) == 0, "fstat");
	return (long)st.st_blocks * 512;
}

// whether a page can be given back here: not all emulators do it
static bool removes(uint8_t *page, int fd)
{
	long before;

	page[0] = 1;
	before = allocated(fd);
	return madvise(page, 4096, MADV_REMOVE) == 0 && allocated(fd) < before;
}

// messages of up to 480 bytes one way; slow: each page of them takes a millisecond
static void passes(struct end *a, struct end *b, int messages, bool slow)
{
	uint8_t in[480], out[480];
	struct iovec v;

	for (int i = 0; i < messages; i++) {
		size_t n = 1 + below(sizeof out), got = 0;
		struct ds_cursor c = cursor_of(&v, out, n);

		for (size_t k = 0; k < n; k++)
			out[k] = byte_at(n + k);
		a->tx.turned = slow ? 0 : UINT64_MAX / 2;
		CHECK(ds_tx_send(&a->seg, &a->tx, &a->attention, &c) == (ssize_t)n, "send of %zu", n);
		for (ssize_t r = 0; r >= 0; got += r > 0 ? (size_t)r : 0) {
			c = cursor_of(&v, in + got, sizeof in - got);
			r = c.left ? ds_rx_recv(&b->seg, &b->rx, &b->attention, &c, false, false) : DS_AGAIN;
			CHECK(r > 0 || r == DS_AGAIN, "recv: %zd", r);
		}
		CHECK(got == n && memcmp(in, out, n) == 0, "%zu of %zu bytes, or others", got, n);
	}
}

static void pages(uint32_t slots)
{
	struct end e[2];
	uint64_t carried;
	int fd;

	memset(e, 0, sizeof e);
	CHECK(ds_seg_create(&e[0].seg, &some_info, slots, 65536, &fd) == 0, "create");
	CHECK(ds_seg_map(&e[1].seg, fd, 1) == 0, "map");
	e[0].seg.bell = e[1].seg.bell = -1;
	bool removed = removes(e[0].seg.txring, fd);
	for (int i = 0; i < 2; i++) {
		ds_tx_promote(&e[i].seg, &e[i].tx, &e[i].attention, 0);
		CHECK(ds_rx_promoted(&e[!i].seg, &e[!i].rx, &carried) == 1, "promoted");
	}
	for (int round = 0; round < 4; round++) {
		passes(&e[0], &e[1], 300, round == 1);
		passes(&e[1], &e[0], 300, round == 1);
		// the header, and of each queue the page in use and perhaps the one before
		bool few = slots >= 64 && removed && round == 1;
		long most = few ? 5 * 4096 : 2 * 4096 + 2 * (long)slots * DS_SLOT;
		CHECK(allocated(fd) <= most, "%u slots, round %d: %ld bytes", slots, round, allocated(fd));
	}
	close(fd);
	ds_seg_unmap(&e[0].seg);
	ds_seg_unmap(&e[1].seg);
}

// Eight slow copies in a row have the next ones go past the caches, until one through them is fast.
static void ways(void)
{
	static uint8_t out[32 << 10], in[sizeof out];
	static const struct {
		size_t n;
		uint32_t slow;
		int32_t past, left; // left -1: the copy is timed
	} of[] = {
		{sizeof out, 8, 16 << 20, (16 << 20) - (32 << 10)}, {sizeof out, 8, 1, 1 - (32 << 10)}, {sizeof out, 8, -1, -1},
		{sizeof out, 7, 16 << 20, -1}, {sizeof out, 0, 0, -1}, {8 << 10, 8, 1 << 20, 1 << 20}, {8 << 10, 8, 0, 0},
	};
	uint64_t carried;
	struct pair p;

	make_pair(&p, 128, 1 << 20);
	struct end *a = &p.end[0], *b = &p.end[1];
	CHECK(ds_tx_promote(&a->seg, &a->tx, &a->attention, 0) == 0 && ds_rx_promoted(&b->seg, &b->rx, &carried) == 1, "promoted");
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		struct iovec v;
		struct ds_cursor c = cursor_of(&v, out, of[i].n);

		for (size_t k = 0; k < of[i].n; k++)
			out[k] = byte_at(i * 77 + k);
		a->tx.slow = of[i].slow;
		a->tx.past = of[i].past;
		CHECK(ds_tx_send(&a->seg, &a->tx, &a->attention, &c) == (ssize_t)of[i].n && !c.left, "%zu: send", i);
		uint32_t slow = of[i].slow;
#if !defined(__x86_64__)
		CHECK(a->tx.slow == slow && a->tx.past == of[i].past, "%zu: timed", i);
#else
		if (of[i].left != -1)
			CHECK(a->tx.slow == slow && a->tx.past == of[i].left, "%zu: slow %u, past %d", i, a->tx.slow, a->tx.past);
		else // it was fast, or not: other work decides
			CHECK(a->tx.slow == slow / 2 || (a->tx.slow == (slow < 8 ? slow + 1 : 8) && a->tx.past == 16 << 20), "%zu: slow %u, past %d", i, a->tx.slow, a->tx.past);
#endif
		c = cursor_of(&v, in, sizeof in);
		CHECK(ds_rx_recv(&b->seg, &b->rx, &b->attention, &c, false, false) == (ssize_t)of[i].n, "%zu: recv", i);
		CHECK(memcmp(in, out, of[i].n) == 0, "%zu: other bytes", i);
	}
	free_pair(&p);
}

// ---- the whole ring is used once there is much to send

enum { NARROW = 1 << 20, RING = 2 << 20 };

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
		w->buf[i] = byte_at(w->sent + i);
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
			CHECK(w->buf[i] == byte_at(w->got), "byte %llu", (unsigned long long)w->got);
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
		CHECK(give(&w, 200000) == 200000 && !w.a->tx.wide, "message %d: wide %d", i, (int)w.a->tx.wide);
		take(&w, 200000);
	}
	end(&w);
	begin(&w); // a stream: never empty, never half full
	give(&w, 3000);
	while (w.sent < 16 << 20) {
		CHECK(give(&w, 50000) == 50000, "no room");
		take(&w, 50000);
		CHECK(w.sent > 8 << 20 || !w.a->tx.wide, "wide after %llu bytes", (unsigned long long)w.sent);
	}
	CHECK(w.a->tx.wide, "not wide");
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
	CHECK(w.sent >= 16 << 20 && !w.a->tx.wide, "wide %d after %llu bytes", (int)w.a->tx.wide, (unsigned long long)w.sent);
	sched_setaffinity(0, sizeof all, &all);
	end(&w);
	begin(&w); // what is unread at the end of the part in use stays there
	give(&w, 4096);
	for (size_t n = NARROW - 4096 - 1024; n; n -= n < 65536 ? n : 65536) {
		give(&w, n < 65536 ? n : 65536);
		take(&w, w.sent - w.got - 1024);
	}
	give(&w, 1024);
	take(&w, w.sent - w.got - 1024);
	CHECK(give(&w, NARROW - 2048) == NARROW - 2048 && !w.a->tx.wide, "the second lap");
	CHECK(give(&w, 3000) == 0 && !w.a->tx.wide, "3000 bytes find room");
	end(&w);
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	int rounds = argc > 1 ? atoi(argv[1]) : 2000;

	streams(16, 65536, 3 << 20);
	streams(128, 1 << 20, 6 << 20);
	streams(128, 2 << 20, 24 << 20);
	streams(4096, 65536, 2 << 20);
	widens();
	ways();
	pages(16);
	pages(128);
	pages(4096);
	for (int i = 0; i < rounds / 4; i++)
		freezes();
	for (int i = 0; i < rounds; i++)
		hostile();
	printf("segment: %d failed\n", failures);
	return failures != 0;
}
