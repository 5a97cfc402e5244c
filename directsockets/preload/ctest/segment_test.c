// Two ends of a segment: random operations by two threads.
#include "harness.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { MAX = 200000 };

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
			buf[i] = nth_byte(done + i);
		s->e->tx.way = (uint32_t)next(s, RING_AGAIN + 1); // through the caches or past them
		s->e->tx.slow = (uint32_t)next(s, 8);
		s->e->tx.left = (int64_t)next(s, 2) * MAX;
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
			if (buf[i] != nth_byte(done + (uint64_t)i)) {
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

// ---- a send of a few messages is seen whole, or not at all

enum { SENDS = 20000, LARGEST = 480 };

static size_t size_of(uint64_t i) { return 121 + i * 7 % (LARGEST - 120); }

struct whole {
	struct end *e;
	uint64_t done; // sends that were received
};

static void *receives_whole(void *arg)
{
	struct whole *w = arg;
	uint8_t buf[LARGEST];

	for (uint64_t i = 0; i < SENDS && !failures; i++) {
		ssize_t r;
		do {
			struct iovec v;
			struct ds_cursor c = cursor_of(&v, buf, sizeof buf);
			r = ds_rx_recv(&w->e->seg, &w->e->rx, &w->e->attention, &c, false, false);
			if (r == DS_AGAIN && i % 64 == 0)
				sched_yield(); // if both have one CPU
		} while (r == DS_AGAIN);
		CHECK(r == (ssize_t)size_of(i), "%zd of %zu bytes of send %llu", r, size_of(i), (unsigned long long)i);
		__atomic_store_n(&w->done, i + 1, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&w->done, SENDS, __ATOMIC_RELEASE);
	return NULL;
}

static ssize_t send_bytes(struct end *e, size_t n)
{
	static uint8_t buf[LARGEST];
	struct iovec v;
	struct ds_cursor c = cursor_of(&v, buf, n);

	return ds_tx_send(&e->seg, &e->tx, &e->attention, &c);
}

static void wholes(void)
{
	struct pair p;
	pthread_t t;
	struct whole w = {&p.end[1], 0};
	uint64_t carried;

	make_pair(&p, 128, 65536);
	CHECK(ds_tx_promote(&p.end[0].seg, &p.end[0].tx, &p.end[0].attention, 0) == 0, "promote");
	CHECK(ds_rx_promoted(&p.end[1].seg, &p.end[1].rx, &carried) == 1, "promoted");
	pthread_create(&t, NULL, receives_whole, &w);
	for (uint64_t i = 0; i < SENDS && !failures; i++) {
		ssize_t r = send_bytes(&p.end[0], size_of(i));
		CHECK(r == (ssize_t)size_of(i), "send: %zd", r);
		for (int k = 0; __atomic_load_n(&w.done, __ATOMIC_ACQUIRE) <= i; k++)
			if (k % 1024 == 1023)
				sched_yield();
	}
	pthread_join(t, NULL);
	free_pair(&p);
}

// A jump leaves a send when some of its messages are shown: none of them is sent, or all are.
static void recovers(void)
{
	struct pair p;
	uint8_t buf[LARGEST];
	uint64_t carried, saved[4];
	struct iovec v;

	make_pair(&p, 16, 65536);
	struct end *a = &p.end[0], *b = &p.end[1];
	CHECK(ds_tx_promote(&a->seg, &a->tx, &a->attention, 0) == 0, "promote");
	CHECK(ds_rx_promoted(&b->seg, &b->rx, &carried) == 1, "promoted");
	for (int shown = 0; shown <= 4; shown++) {
		uint64_t count = a->tx.count;
		CHECK(send_bytes(a, LARGEST) == LARGEST && a->tx.count == count + 4, "send");
		for (int i = 0; i < 4; i++) { // as if it had shown the last of them only
			saved[i] = a->seg.txq[(count + (uint64_t)i) & 15].status;
			if (i < 4 - shown)
				a->seg.txq[(count + (uint64_t)i) & 15].status = 0;
		}
		CHECK(saved[0] && saved[3], "status");
		a->tx.count = count;
		ds_tx_recover(&a->seg, &a->tx, &a->attention);
		CHECK(a->tx.count == count + (shown == 4 ? 4 : 0), "%d shown", shown);
		CHECK(send_bytes(a, 5) == 5, "send");
		struct ds_cursor c = cursor_of(&v, buf, sizeof buf);
		if (shown == 4)
			CHECK(ds_rx_recv(&b->seg, &b->rx, &b->attention, &c, false, false) == LARGEST, "what was sent");
		c = cursor_of(&v, buf, sizeof buf);
		ssize_t r = ds_rx_recv(&b->seg, &b->rx, &b->attention, &c, false, false);
		CHECK(r == 5, "%zd bytes with %d shown", r, shown);
	}
	free_pair(&p);
}

// A PAUSE right after PROMOTE takes nothing back: neither end counts it.
static void pauses(void)
{
	struct pair p;
	struct iovec v;
	uint8_t buf[8];
	uint64_t carried, want = 0;

	make_pair(&p, 16, 65536);
	struct end *a = &p.end[0], *b = &p.end[1];
	for (int sends = 0; sends < 6; sends++) {
		CHECK(ds_tx_promote(&a->seg, &a->tx, &a->attention, 0) == 0, "promote");
		CHECK(ds_rx_promoted(&b->seg, &b->rx, &carried) == 1, "promoted");
		if (sends % 2) {
			struct ds_cursor c = cursor_of(&v, buf, sizeof buf);

			CHECK(send_bytes(a, 5) == 5, "send");
			CHECK(ds_rx_recv(&b->seg, &b->rx, &b->attention, &c, false, false) == 5, "receive");
			want++;
		}
		CHECK(ds_tx_end(&a->seg, &a->tx, &a->attention, DS_PAUSE) == 0, "pause");
		CHECK(ds_rx_look(&b->seg, &b->rx) == DS_PAUSED && ds_rx_bare(&b->rx) == !(sends % 2), "it is bare: %d", ds_rx_bare(&b->rx));
		CHECK(a->seg.counters[DS_C_TX_DEMOTE] == want, "%d of %d count", (int)a->seg.counters[DS_C_TX_DEMOTE], (int)want);
		ds_rx_finish(&b->seg, &b->rx, &b->attention, true);
		CHECK(ds_tx_resumed(&a->seg, &a->tx, &a->attention), "resumed");
	}
	free_pair(&p);
}

// A sender whose peer is a node waits for room, and says that there is none, only while at least
// half of the queue or of the ring is in use, whatever SO_SNDBUF is: the node looks for what the
// far program consumes only then (SPEC 5.8).
static void waits_for_node(void)
{
	static const uint32_t slots[] = {16, 128, 4096};
	static const uint64_t rings[] = {65536, 2 << 20, 4 << 20}, windows[] = {8192, 46080, UINT64_MAX};
	uint8_t *buf = calloc(1, MAX);
	int waits = 0;

	for (int i = 0; i < 27; i++) {
		struct stream rnd = {.state = 88172645463325252u + (uint64_t)i};
		struct pair p;

		make_pair(&p, slots[i % 3], rings[i / 3 % 3]);
		struct end *e = &p.end[1];
		struct ds_seg *g = &e->seg;
		p.end[0].seg.own->flags |= DS_RELAYED;
		if (windows[i / 9] < g->ring)
			g->window = windows[i / 9];
		CHECK(ds_tx_promote(g, &e->tx, &e->attention, 0) == 0, "promote");
		for (int turn = 0; turn < 50; turn++) {
			ssize_t r = 1;

			while (r > 0 && ds_tx_room(g, &e->tx) == 1) {
				struct iovec v;
				struct ds_cursor c = cursor_of(&v, buf, some(&rnd, MAX));
				r = ds_tx_send(g, &e->tx, &e->attention, &c);
				CHECK(r > 0 || r == DS_AGAIN, "send: %zd", r);
			}
			uint64_t count = e->tx.count - e->tx.consumed, used = e->tx.put - e->tx.freed;
			CHECK(count >= g->slots / 2 || used >= g->ring / 2, "it waits with %llu of %u slots and %llu of %llu bytes in use, window %llu",
			      (unsigned long long)count, g->slots, (unsigned long long)used, (unsigned long long)g->ring, (unsigned long long)g->window);
			waits++;
			p.end[0].seg.own->consumed = e->tx.count - next(&rnd, g->slots / 2) % (count + 1);
			p.end[0].seg.own->freed = e->tx.put - next(&rnd, g->ring / 2) % (used + 1);
		}
		free_pair(&p);
	}
	CHECK(waits == 27 * 50, "%d waits", waits);
	free(buf);
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

// how messages pass: in a burst, or so that each page of them takes a millisecond; crowded: so do
// those of many other connections
enum pace { BURST, SLOWLY, CROWDED };

// messages of up to 480 bytes one way
static void passes(struct end *a, struct end *b, int messages, enum pace pace)
{
	uint8_t in[480], out[480];
	struct iovec v;

	for (int i = 0; i < messages; i++) {
		size_t n = 1 + below(sizeof out), got = 0;
		struct ds_cursor c = cursor_of(&v, out, n);

		for (size_t k = 0; k < n; k++)
			out[k] = nth_byte(n + k);
		a->tx.turned = pace == BURST ? UINT64_MAX / 2 : 0;
		ds_busy = pace == CROWDED ? ds_ticks() + (1ULL << 40) : 0;
		CHECK(ds_tx_send(&a->seg, &a->tx, &a->attention, &c) == (ssize_t)n, "send of %zu", n);
		for (ssize_t r = 0; r >= 0; got += r > 0 ? (size_t)r : 0) {
			c = cursor_of(&v, in + got, sizeof in - got);
			r = c.left ? ds_rx_recv(&b->seg, &b->rx, &b->attention, &c, false, false) : DS_AGAIN;
			CHECK(r > 0 || r == DS_AGAIN, "recv: %zd", r);
		}
		CHECK(got == n && memcmp(in, out, n) == 0, "%zu of %zu bytes, or others", got, n);
	}
}

// how often a process gives pages back in 2^28 ticks (about 0.1 s), if it fills one every so many
// ticks, all by slow connections
static int gives(uint64_t every)
{
	int n = 0;

	ds_busy = 0;
	for (uint64_t t = every; t <= 1 << 28; t += every)
		n += ds_may_give((1ULL << 50) + t, true);
	return n;
}

// Giving back costs little, whatever a process sends: 32 times in 2^28 ticks would be once in 3 ms.
static void paces(void)
{
	CHECK(gives(1 << 24) == 16, "a page in 6 ms: given back %d times", gives(1 << 24));
	int some = gives(1 << 22);
	CHECK(some >= 20 && some <= 32, "a page in 1.6 ms: given back %d times", some);
	CHECK(gives(1 << 20) <= 1, "a page in 0.4 ms: given back %d times", gives(1 << 20));
	CHECK(gives(1 << 17) <= 1, "a page in 0.05 ms: given back %d times", gives(1 << 17));
	CHECK(!ds_may_give((1ULL << 50) + (1 << 28) + (1 << 24), true), "given back at once after a burst");
	CHECK(ds_may_give((1ULL << 50) + (1 << 29), true), "not given back after a burst");
	CHECK(!ds_may_give((1ULL << 50) + (1 << 30), false), "given back by a connection that is not slow");
	ds_busy = 0;
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
	static const enum pace paces[] = {BURST, SLOWLY, CROWDED, BURST, SLOWLY};
	for (unsigned round = 0; round < sizeof paces / sizeof *paces; round++) {
		passes(&e[0], &e[1], 300, paces[round]);
		passes(&e[1], &e[0], 300, paces[round]);
		// the header, and of each queue the page in use and perhaps the one before
		long few = 5 * 4096, all = 2 * 4096 + 2 * (long)slots * DS_SLOT;
		bool gives = slots >= 64 && removed;
		CHECK(allocated(fd) <= (gives && paces[round] == SLOWLY ? few : all), "%u slots, round %u: %ld bytes", slots, round, allocated(fd));
		CHECK(!gives || paces[round] != CROWDED || allocated(fd) > few, "%u slots, crowded: %ld bytes", slots, allocated(fd));
	}
	close(fd);
	ds_seg_unmap(&e[0].seg);
	ds_seg_unmap(&e[1].seg);
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	streams(16, 65536, 3 << 20);
	streams(128, 1 << 20, 6 << 20);
	streams(128, 2 << 20, 24 << 20);
	streams(4096, 65536, 2 << 20);
	wholes();
	recovers();
	pauses();
	waits_for_node();
	paces();
	pages(16);
	pages(128);
	pages(4096);
	printf("segment: %d failed\n", failures);
	return failures != 0;
}
