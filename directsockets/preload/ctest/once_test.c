// What the peer can write is read once: every byte is another as soon as it was read, and those
// that are read again within a call are counted. Words that are meant to be looked at again
// (status, control block) are left out.
#include "harness.h"

#include "segment/segment_inner.h"

static struct watched {
	uint8_t *mem;
	size_t size, queues, rings; // where the queues begin, and the rings
	uint8_t *reads;             // of each byte
	uint64_t read, again;
	bool on;
} w;

// Is the byte at off part of a message?
static bool is_data(size_t off)
{
	if (off < w.queues)
		return off < DS_HEADER;
	return off >= w.rings || (off - w.queues) % DS_SLOT >= 8;
}

void ds_read_hook(const volatile void *p, size_t n)
{
	size_t at = (size_t)((const uint8_t *)p - w.mem);

	if (!w.on || (const uint8_t *)p < w.mem || at >= w.size)
		return;
	for (size_t i = at; i < at + n && i < w.size; i++) {
		if (!is_data(i))
			continue;
		w.read++;
		w.again += w.reads[i]++ > 0;
		w.mem[i] ^= 0xff;
	}
}

// Begins to watch the segment of p.
static void watch(struct pair *p)
{
	size_t rings;

	ds_seg_size(p->end[0].seg.slots, p->end[0].seg.ring, &rings);
	w = (struct watched){.mem = p->mem, .size = p->size, .queues = DS_QUEUES, .rings = rings, .reads = calloc(1, p->size)};
	w.on = true;
}

// Ends the watch. At least least bytes were read, and none of them again.
static void once(const char *what, uint64_t least)
{
	w.on = false;
	CHECK(w.read >= least && w.again == 0, "%s: %llu bytes read, %llu again", what, (unsigned long long)w.read,
	      (unsigned long long)w.again);
	free(w.reads);
}

static uint8_t data[300000], got[300000];
static size_t kept;

static ssize_t keep(void *arg, const void *p, size_t n)
{
	(void)arg;
	memcpy(got + kept, p, n);
	kept += n;
	return (ssize_t)n;
}

static void promoted(struct pair *p)
{
	struct end *a = &p->end[0], *b = &p->end[1];
	uint64_t carried = 0;

	make_pair(p, 128, 1 << 20);
	CHECK(ds_tx_promote(&a->seg, &a->tx, &a->attention, 77) == 0, "promote");
	watch(p);
	CHECK(ds_rx_promoted(&b->seg, &b->rx, &carried) == 1 && carried == 77, "%llu", (unsigned long long)carried);
	once("PROMOTE", 8);
}

static void send_all(struct end *e, size_t n)
{
	struct iovec v;
	struct ds_cursor c = cursor_of(&v, data, n);

	while (c.left) {
		ssize_t r = ds_tx_send(&e->seg, &e->tx, &e->attention, &c);
		CHECK(r > 0, "send: %zd", r);
		if (r <= 0)
			exit(1);
	}
}

static void received(size_t n)
{
	struct pair p;
	struct iovec v;

	promoted(&p);
	send_all(&p.end[0], n);
	watch(&p);
	struct ds_cursor c = cursor_of(&v, got, n);
	struct end *b = &p.end[1];
	memset(got, 0, n);
	ssize_t r = ds_rx_recv(&b->seg, &b->rx, &b->attention, &c, false, false);
	CHECK(r == (ssize_t)n && memcmp(got, data, n) == 0, "%zd bytes of %zu", r, n);
	once("recv", n);
	free_pair(&p);
}

// What each of the calls that only look makes of a queue.
static void looked(size_t n)
{
	struct pair p;
	struct end *b = &p.end[1];
	uint64_t seen = 0;

	promoted(&p);
	send_all(&p.end[0], n);
	watch(&p);
	CHECK(ds_rx_look(&b->seg, &b->rx) == 1, "look");
	once("look", 0);
	free_pair(&p);
	promoted(&p);
	send_all(&p.end[0], n);
	watch(&p);
	CHECK(ds_rx_readable(&b->seg, &b->rx) == n, "readable");
	once("readable", 0);
	watch(&p);
	ds_rx_arrived(&b->seg, &b->rx, &seen);
	once("arrived", 0);
	free_pair(&p);
}

static void sender_returns(size_t n)
{
	struct pair p;
	struct end *a = &p.end[0], *b = &p.end[1];
	uint64_t slot, off;
	bool ended = false;

	promoted(&p);
	send_all(a, n);
	CHECK(ds_seg_fall_back(&b->seg, &b->rx, &b->attention) == 1, "fall back");
	CHECK(ds_tx_return_begin(&a->seg, &a->tx, &a->attention, &slot, &off) == 0, "begin");
	kept = 0;
	watch(&p);
	CHECK(ds_tx_return(&a->seg, &a->tx, &slot, &off, keep, NULL, &ended) == 0 && kept == n && memcmp(got, data, n) == 0, "%zu", kept);
	once("return", 0);
	free_pair(&p);
}

// What a receiver that has fallen back counts, and where it goes on when the shadow has ended: each
// is a call, and a message in its middle is checked again by the next one.
static void returned(size_t n)
{
	struct pair p;
	uint64_t carried = 0, left = 0;

	make_pair(&p, 128, 1 << 20);
	struct end *b = &p.end[1];
	CHECK(ds_tx_promote(&p.end[0].seg, &p.end[0].tx, &p.end[0].attention, 77) == 0, "promote");
	send_all(&p.end[0], n);
	CHECK(ds_seg_fall_back(&b->seg, &b->rx, &b->attention) == 1, "fall back");
	watch(&p);
	CHECK(ds_rx_left(&b->seg, &b->rx, &carried, &left) == 1 && carried == 77 && left == n, "left: %llu", (unsigned long long)left);
	once("left", 8);
	free_pair(&p);
	promoted(&p);
	send_all(&p.end[0], n);
	CHECK(ds_seg_fall_back(&b->seg, &b->rx, &b->attention) == 1, "fall back");
	watch(&p);
	CHECK(ds_rx_forward(&b->seg, &b->rx, n / 2) == 0, "forward");
	once("forward", 0);
	free_pair(&p);
}

static void header(void)
{
	struct pair p;
	struct ds_seg g;

	make_pair(&p, 128, 1 << 20);
	watch(&p);
	CHECK(ds_seg_view(&g, p.mem, p.size, 1) == 0 && memcmp(&g.info, &some_info, sizeof g.info) == 0 && g.slots == 128, "view");
	once("header", DS_HEADER);
	free_pair(&p);
}

// The device finds a word that is read twice.
static void planted(void)
{
	struct pair p;

	promoted(&p);
	send_all(&p.end[0], 100000);
	watch(&p);
	uint32_t first = GET32(rx_slot(&p.end[1].seg, 1), 4), second = GET32(rx_slot(&p.end[1].seg, 1), 4);
	w.on = false;
	CHECK(first == ~second && w.again == 4, "%u, %u, %llu again", first, second, (unsigned long long)w.again);
	free(w.reads);
	free_pair(&p);
}

int main(void)
{
	static const size_t sizes[] = {1, 119, 120, 121, 480, 481, 5000, 32768, 300000};

	for (size_t i = 0; i < sizeof data; i++)
		data[i] = (uint8_t)(i * 7 + (i >> 8));
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		received(sizes[i]);
		looked(sizes[i]);
		sender_returns(sizes[i]);
		returned(sizes[i]);
	}
	header();
	planted();
	return failures != 0;
}
