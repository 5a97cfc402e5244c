// The targets of the fuzzer: what reads bytes that somebody else wrote.
#include "harness.h" // first: it says which declarations of the C library there are

#include "conn/broker.h"
#include "conn/rules.h"
#include "fuzz.h"

#include <unistd.h>

static void must(bool ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "fuzz: %s\n", what);
		abort();
	}
}

// ---- rules: flags, then the rules, a line end, the program, a line end, an address and a port

static void fuzz_rules(const uint8_t *in, size_t n)
{
	uint8_t addr[18] = {0};

	if (n < 1)
		return;
	const uint8_t *p = in + 1, *end = in + n;
	char *part[2];
	for (int i = 0; i < 2; i++) {
		const uint8_t *stop = memchr(p, '\n', (size_t)(end - p));
		stop = stop ? stop : end;
		part[i] = malloc((size_t)(stop - p) + 1);
		memcpy(part[i], p, (size_t)(stop - p));
		part[i][stop - p] = 0;
		p = stop < end ? stop + 1 : end;
	}
	memcpy(addr, p, (size_t)(end - p) < sizeof addr ? (size_t)(end - p) : sizeof addr);
	int bad = rules_set(part[0], part[1], in[0] & 1, in[0] >> 2), port = addr[16] | addr[17] << 8;
	for (int side = 0; side < 3; side++) {
		int got = side < 2 ? rules_decide(side, addr, port) : rules_listen(addr, port);
		must(got == RULES_DIRECT || got == RULES_TCP || got == RULES_NOT_INCLUDED, "an answer that is none");
		must(!bad || got == RULES_TCP, "malformed rules say direct");
		int class = rules_class(side, addr, port);
		must(class >= 0 && class <= 63 && (!bad || class == 0), "a class that is none");
	}
	must(strlen(rules_program()) < 256, "a program's name of 256 bytes");
	rules_set("", "", 0, 0);
	free(part[0]);
	free(part[1]);
}

// ---- message: of the broker

static void fuzz_message(const uint8_t *in, size_t n)
{
	uint8_t b[DS_MESSAGE];
	struct ds_message m, again;

	if (!ds_message_get(&m, in, n))
		return;
	size_t k = ds_message_put(b, &m);
	must(k == n, "another length");
	must(ds_message_get(&again, b, k), "what it wrote is refused");
	must(memcmp(&m, &again, sizeof m) == 0, "another message");
	must(ds_bucket(&m.info) < 4096, "a bucket that is none");
}

// ---- header: of a segment of a size that the input says

static void fuzz_header(const uint8_t *in, size_t n)
{
	static uint8_t mem[1 << 20];
	struct ds_seg g;
	uint32_t size;

	if (n < 5)
		return;
	memcpy(&size, in, 4);
	size %= sizeof mem + 1;
	memset(mem, 0, 512);
	memcpy(mem, in + 5, n - 5 < 512 ? n - 5 : 512);
	if (size < DS_QUEUES || ds_seg_view(&g, mem, size, in[4] & 1) < 0)
		return;
	must(g.slots >= DS_MIN_SLOTS && g.slots <= DS_MAX_SLOTS && (g.slots & (g.slots - 1)) == 0 && 1u << g.shift == g.slots, "slots");
	must(g.ring >= DS_MIN_RING && g.ring <= DS_MAX_RING && g.ring % 4096 == 0, "ring");
	must(g.size == size && ds_seg_size(g.slots, g.ring, &(size_t){0}) == size, "size");
	const volatile uint8_t *ends[] = {(uint8_t *)(g.txq + g.slots), (const volatile uint8_t *)(g.rxq + g.slots), g.txring + g.ring, g.rxring + g.ring};
	for (int i = 0; i < 4; i++)
		must(ends[i] > mem + DS_QUEUES && ends[i] <= mem + size, "a queue or a ring lies elsewhere");
}

// ---- segment: a victim works while the input writes into its segment

struct script {
	const uint8_t *p;
	size_t n;
};

static void take(struct script *s, void *to, size_t n)
{
	size_t k = s->n < n ? s->n : n;

	memset(to, 0, n);
	memcpy(to, s->p, k);
	s->p += k;
	s->n -= k;
}

static uint8_t byte(struct script *s)
{
	uint8_t b;

	take(s, &b, 1);
	return b;
}

static struct pair *victim;

static ssize_t some(void *arg, const void *p, size_t n)
{
	const uint8_t *b = p, *mem = victim->mem + DS_QUEUES;
	uint8_t *left = arg;

	must(b >= mem && n <= victim->size - DS_QUEUES && b <= victim->mem + victim->size - n, "bytes from elsewhere");
	return (*left)-- ? (ssize_t)(n / 2 + 1) : -1;
}

// What a receiver does whose peer has set RETURNED, up to the end of the shadow: it counts what is
// left, and goes on some bytes later. In between, the input writes a word.
static void rest(struct pair *p, struct end *e, struct script *s, uint8_t k)
{
	uint64_t carried = 0, n = 0, most = (uint64_t)e->seg.slots * DS_MAX_RMA, x, skip;
	uint16_t where;
	int got = ds_rx_left(&e->seg, &e->rx, &carried, &n);

	must(got == 0 || got == 1 || got == DS_BREACH, "left");
	must(n <= most && (got < 1 || carried + n >= carried), "more is left than a queue holds");
	take(s, &where, 2);
	take(s, &x, 8);
	memcpy(p->mem + where % (p->size - 8), &x, 8);
	take(s, &skip, k & 1 ? 8 : 2);
	if (got == 1 && (k & 2)) {
		got = ds_rx_forward(&e->seg, &e->rx, n ? skip % n : 0);
		must(got == 0 || got == DS_BREACH, "forward");
		must(ds_rx_readable(&e->seg, &e->rx) <= most, "the rest");
	}
}

static void step(struct pair *p, struct end *e, struct script *s)
{
	static uint8_t buf[1 << 16];
	struct iovec v;
	uint64_t x, slot, off;
	bool ended;
	uint8_t op = byte(s), k = byte(s);
	struct ds_cursor c = cursor_of(&v, buf, (size_t)k * 257 + 1);
	ssize_t r;

	switch (op % 14) {
	case 0: { // poke: 3 bytes of offset, words
		uint8_t at[4] = {0};
		uint32_t where;
		take(s, at, 3);
		memcpy(&where, at, 4);
		where %= (uint32_t)p->size - 8;
		for (int i = 0; i <= k % 8 && where + 8 <= p->size; i++, where += 8) {
			take(s, &x, 8);
			memcpy(p->mem + where, &x, 8);
		}
		break;
	}
	case 1:
	case 2: { // a message with a lap that is right: tag, length, payload
		uint64_t count = e->rx.pos[e->rx.cur & 1].count + k % 4;
		struct ds_slot *q = (struct ds_slot *)&e->seg.rxq[count & (e->seg.slots - 1)];
		uint8_t tag = byte(s), len = byte(s);
		take(s, q->payload, op % 14 == 1 ? 8 : 28);
		q->status = (uint32_t)((count >> e->seg.shift) + 1) | (uint64_t)tag << 32 | (uint64_t)len << 40;
		break;
	}
	case 3:
	case 4:
		r = ds_rx_recv(&e->seg, &e->rx, &e->attention, &c, op & 16, op & 32);
		must(r <= (ssize_t)v.iov_len && r >= DS_BREACH, "recv");
		break;
	case 5:
		r = ds_tx_send(&e->seg, &e->tx, &e->attention, &c);
		must(r <= (ssize_t)v.iov_len && r >= DS_BREACH, "send");
		break;
	case 6:
		ds_rx_promoted(&e->seg, &e->rx, &x);
		break;
	case 7:
		ds_tx_promote(&e->seg, &e->tx, &e->attention, k);
		break;
	case 8:
		ds_rx_look(&e->seg, &e->rx);
		ds_rx_hint(&e->seg, &e->rx);
		ds_tx_hint(&e->seg, &e->tx);
		ds_rx_ends(&e->seg, &e->rx, &x);
		ds_rx_arrived(&e->seg, &e->rx, &x);
		must(ds_rx_readable(&e->seg, &e->rx) <= (uint64_t)e->seg.slots * DS_MAX_RMA, "readable");
		ds_tx_queued(&e->seg, &e->tx);
		break;
	case 9:
		ds_tx_room(&e->seg, &e->tx);
		ds_seg_peer_state(&e->seg);
		break;
	case 10:
		if (ds_tx_return_begin(&e->seg, &e->tx, &e->attention, &slot, &off) == 0)
			for (int i = 0; i < 20 && ds_tx_return(&e->seg, &e->tx, &slot, &off, some, &k, &ended) == DS_AGAIN; i++)
				k = (uint8_t)i;
		break;
	case 11:
		if (k % 4 == 0)
			ds_tx_recover(&e->seg, &e->tx, &e->attention);
		else if (k % 4 == 1)
			ds_seg_fall_back(&e->seg, &e->rx, &e->attention);
		else
			ds_tx_end(&e->seg, &e->tx, &e->attention, k % 4 == 2 ? DS_SHUTDOWN : DS_DEMOTE);
		break;
	case 12:
		ds_attend(&e->seg, &e->attention, k & 127, (uint32_t)k >> 7);
		break;
	case 13:
		(k < 128) ? ds_rx_finish(&e->seg, &e->rx, &e->attention, k & 1) : rest(p, e, s, k);
	}
}

static void fuzz_segment(const uint8_t *in, size_t n)
{
	static struct pair p;
	struct script s = {in, n};

	if (!victim) { // once: it takes longer than the rest
		make_pair(&p, 16, 65536);
		victim = &p;
	}
	memset(p.mem, 0, DS_QUEUES + 2 * 16 * DS_SLOT);
	ds_seg_header(p.mem, &some_info, 16, 65536);
	struct end *e = &p.end[byte(&s) & 1];
	memset(&e->tx, 0, sizeof e->tx);
	memset(&e->rx, 0, sizeof e->rx);
	memset(&e->attention, 0, sizeof e->attention);
	while (s.n)
		step(&p, e, &s);
	must(failures == 0, "the harness");
}

// A flow whose other side writes to the control blocks and the ring, in which a record begins
// wherever it likes.
static void fuzz_flow(const uint8_t *in, size_t n)
{
	enum { RING = DS_DG_MIN_RING };
	static uint8_t *mem, out[DS_DG_MAX];
	struct script s = {in, n};
	struct ds_dgseg tx, rx;
	struct ds_dg_meta m;
	const volatile uint8_t *bytes;
	uint64_t x;

	if (!mem)
		mem = aligned_alloc(4096, DS_DG_RING + RING);
	memset(mem, 0, 2 * DS_DG_RING);
	ds_dg_header(mem, &some_info, RING);
	must(ds_dg_view(&tx, mem, DS_DG_RING + RING, true) == 0 && ds_dg_view(&rx, mem, DS_DG_RING + RING, false) == 0, "view");
	while (s.n) {
		uint8_t k = byte(&s), v = byte(&s);

		switch (k % 8) {
		case 0: { // a status where the receiver looks
			uint32_t status = (uint32_t)(k / 8 % 4) << 24 | (uint32_t)v << (byte(&s) % 17);
			memcpy(mem + DS_DG_RING + (rx.at & (RING - 1)), &status, 4);
			break;
		}
		case 1:
			mem[DS_DG_RING + (rx.at & (RING - 1)) + k / 8 % 16] = v;
			break;
		case 2:
			mem[(v & 128 ? DS_CTRL : 2 * DS_CTRL) + (v & 127)] ^= (uint8_t)(1u << k / 32);
			break;
		case 3:
			if (ds_dg_next(&rx, &m, &bytes)) {
				must(m.len <= DS_DG_MAX && bytes >= rx.ring && bytes + m.len <= rx.ring + RING, "bounds");
				ds_dg_copy(out, bytes, m.len);
				ds_dg_take(&rx, &m);
			}
			break;
		case 4:
			x = ds_dg_arrived(&rx);
			must(x <= rx.at + RING + RING, "arrived");
			ds_dg_stamp(&rx);
			ds_dg_there(&rx);
			break;
		case 5: {
			struct iovec iov = {out, v * 7u};
			struct ds_cursor c = {.v = &iov, .n = 1, .left = iov.iov_len};
			m = (struct ds_dg_meta){.len = (uint32_t)iov.iov_len};
			ds_dg_send(&tx, &m, &c);
			must(tx.at - tx.known <= RING || tx.broken, "room");
			break;
		}
		case 6:
			ds_dg_queued(&tx);
			ds_dg_settled(&tx, v, k);
			ds_dg_dry(&tx, v, &x);
			break;
		case 7:
			ds_dg_busy(&rx);
			ds_dg_left(&rx);
			ds_dg_arm(&rx, v & 1);
			ds_dg_drop(&tx);
		}
	}
}

const struct fuzz_target fuzz_targets[] = {
	{"rules", fuzz_rules, 1000},
	{"message", fuzz_message, 80},
	{"header", fuzz_header, 128},
	{"segment", fuzz_segment, 1000},
	{"flow", fuzz_flow, 600},
	{0},
};
