/* The outbound direction of a segment (SPEC 2.3, 4.1, 4.2, 5.5). */
#include "segment/txring.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum {
	PAGE = 4096,
	PAGE_SLOTS = PAGE / DS_SLOT,
	SETTLED = 2,	/* messages in a page when give_back asks whether those before are consumed */
	SLOW = 1 << 20, /* ticks, about 0.4 ms: what a page of messages takes if little is sent */
	APART = 1 << 23, /* ticks, about 3 ms: oftener, giving back costs a process more than 1 % */
	BUSY = 1 << 21,	 /* ticks, about 0.8 ms: a process that fills a page oftener gives none back */
	BUSY_MOST = 1 << 25, /* ticks, about 13 ms, after which what it sent in a burst is forgotten */
	THRESHOLD = 480, /* bytes: a send of up to this travels in VELO messages, */
	WHOLE = 4,	 /* which are so many at most */
};

/* 1: n more slots are free; 0: they are not; DS_BREACH. */
static inline int slots_free(struct ds_seg *g, struct ds_tx *t, uint32_t n)
{
	if (t->count - t->consumed + n <= g->slots)
		return 1;
	if (!ds_tx_refresh(g, t))
		return DS_BREACH;
	return t->count - t->consumed + n <= g->slots;
}

/* Stores when message number count was sent, in ds_ticks. */
static inline void stamp(struct ds_seg *g, uint64_t count, unsigned len, uint64_t sent)
{
	if (len <= DS_STAMPED)
		memcpy(tx_slot(g, count)->payload + stamp_at(len), &sent, 8);
	else
		SET(&g->txstamps[count % DS_STAMP_RING], sent);
}

/* Stores the status of message number count, which is complete. */
static inline void show(struct ds_seg *g, uint64_t count, unsigned tag, unsigned len)
{
	RELEASE(&tx_slot(g, count)->status, (uint64_t)lap(g, count) | (uint64_t)tag << 32 | (uint64_t)len << 40);
}

/* The next n messages are shown. */
static inline void shown(struct ds_tx *t, unsigned n)
{
	t->put = t->next_put;
	t->off = t->next_off;
	__atomic_signal_fence(__ATOMIC_RELEASE);
	SET(&t->count, t->count + n);
}

/* Shows the next message to the peer: its tag, its length, and when it was sent. The caller is the
 * only sender. */
static inline void publish(struct ds_seg *g, struct ds_tx *t, unsigned tag, unsigned len, uint64_t sent)
{
	stamp(g, t->count, len, sent);
	show(g, t->count, tag, len);
	shown(t, 1);
}

/* The tag of the last message, or 0: there is none, or its slot was given back. */
static unsigned last_tag(struct ds_seg *g, const struct ds_tx *t)
{
	uint64_t last = t->count ? GET(&tx_slot(g, t->count - 1)->status) : 0;

	return t->count && (uint32_t)last == lap(g, t->count - 1) ? last >> 32 & 0xff : 0;
}

unsigned ds_tx_recover(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a)
{
	unsigned n = 0;

	while (n < WHOLE && (uint32_t)GET(&tx_slot(g, t->count + n)->status) == lap(g, t->count + n))
		n++;
	/* Of messages that are shown at once (send_whole), the last are there if the first is not:
	 * the peer has not seen them, and shall not. */
	for (unsigned i = 1; n == 0 && i < WHOLE; i++)
		if ((uint32_t)GET(&tx_slot(g, t->count + i)->status) == lap(g, t->count + i))
			SET(&tx_slot(g, t->count + i)->status, 0);
	if (n)
		shown(t, n);
	t->next_put = t->put;
	t->next_off = t->off;
	ds_attend_again(g, a);
	return last_tag(g, t);
}

/* fallen back: the peer has fallen back. stopped: it has fallen back or closed it. Any thread may
 * ask. */
static inline bool fallen_back(struct ds_seg *g) { return GET(&g->peer->attention) & DS_FALLEN_BACK; }
static inline bool stopped(struct ds_seg *g) { return GET(&g->peer->attention) & (DS_FALLEN_BACK | DS_CLOSED | DS_RESET); }

/* May nothing more be sent? It has stopped, or the connection goes back to TCP. */
static inline bool closed_to_data(struct ds_seg *g)
{
	return (GET(&g->peer->attention) & (DS_FALLEN_BACK | DS_CLOSED | DS_RESET | DS_OFF)) | GET(&g->peer->cut) | GET(g->off);
}

int ds_tx_promote(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a, uint64_t carried)
{
	ds_seg_heed(g, a);
	return closed_to_data(g) ? DS_STOPPED : ds_tx_promote_to_pause(g, t, a, carried);
}

int ds_tx_promote_to_pause(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a, uint64_t carried)
{
	if (stopped(g))
		return DS_STOPPED;
	memcpy(tx_slot(g, t->count)->payload, &carried, 8);
	publish(g, t, DS_PROMOTE, 8, ds_ticks());
	ds_ring(g, a, DS_ARM_RX);
	return 0;
}

/* Fetches the slot that will be written next: the peer read it a lap ago and has it in its
 * cache. */
static inline void own_soon(const struct ds_slot *s)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(s->status));
	__asm__ volatile("prefetchw %0" : : "m"(s->payload[56]));
#else
	__builtin_prefetch(&s->status, 1);
	__builtin_prefetch(&s->payload[56], 1);
#endif
}

/* Gives back the n pages of the queue from page on, which is counted from the beginning. */
static bool give(struct ds_seg *g, uint64_t page, uint64_t n)
{
	uint64_t pages = g->slots / PAGE_SLOTS;

	while (n) {
		uint64_t at = page % pages, run = n < pages - at ? n : pages - at;

		if (ds_syscall(SYS_madvise, (uint8_t *)g->txq + at * PAGE, run * PAGE, MADV_REMOVE) < 0)
			return false;
		page += run;
		n -= run;
	}
	return true;
}

uint64_t ds_busy;

bool ds_may_give(uint64_t now, bool slow)
{
	uint64_t last = GET(&ds_busy), until = (int64_t)(last - now) > 0 ? last : now;
	bool may = slow && until == now;

	until += may ? APART : BUSY;
	if (until - now > BUSY_MOST)
		until = now + BUSY_MOST;
	return __atomic_compare_exchange_n(&ds_busy, &last, until, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) && may;
}

/* Gives back the pages of the queue but the one that is being written, if little is sent and all
 * messages in them are consumed: an idle connection keeps few (SPEC 2.3). The caller sends
 * alone. */
static __attribute__((noinline)) void give_back(struct ds_seg *g, struct ds_tx *t)
{
	uint64_t page = t->count / PAGE_SLOTS, pages = g->slots / PAGE_SLOTS, now = ds_ticks();
	bool slow = now && (int64_t)(now - t->turned) >= SLOW && lap(g, t->count) + 1 >= 2; /* in a page of zeros is lap 0 */
	int saved = errno;

	if (slow && (!ds_tx_refresh(g, t) || t->consumed < page * PAGE_SLOTS)) {
		t->turn = t->count + SETTLED;
		return;
	}
	t->turn = (page + 1) * PAGE_SLOTS + SETTLED;
	t->turned = now;
	if (!ds_may_give(now, slow))
		return;
	if (page - t->kept >= pages)
		t->kept = page - pages + 1;
	if (pages < 2 || !ds_map_lazy() || !give(g, t->kept, page - t->kept))
		t->turn = UINT64_MAX; /* never again */
	t->kept = page;
	errno = saved;
}

/* Sends what is left of c, which is one message, for which there is a slot. */
static inline ssize_t send_one(struct ds_seg *g, struct ds_tx *t, struct ds_cursor *c)
{
	size_t n = c->left;

	if (__builtin_expect(!reachable(c, n, false), 0))
		return DS_FAULT;
	own_soon(tx_slot(g, t->count)); /* both lines at once: a peer that waits has read them since */
	ds_gather(c, tx_slot(g, t->count)->payload, n);
	publish(g, t, DS_VELO_LAST, (unsigned)n, c->at ? c->at : ds_ticks());
	ds_count(g, DS_C_TX_VELO_LAST, 1);
	return (ssize_t)n;
}

/* Sends the k messages of c, 1 < k <= WHOLE, for which there are slots. The peer sees all or none,
 * as it would find the bytes of one send on TCP: so what it looks at first is shown last. */
static __attribute__((noinline)) ssize_t send_whole(struct ds_seg *g, struct ds_tx *t, struct ds_cursor *c, unsigned k)
{
	uint64_t now = c->at ? c->at : ds_ticks();
	size_t sent = c->left;
	unsigned last = (unsigned)(sent - (k - 1) * (size_t)DS_VELO_MAX);

	if (__builtin_expect(!reachable(c, sent, false), 0))
		return DS_FAULT;
	for (unsigned i = 0; i < k; i++) {
		unsigned n = i + 1 < k ? DS_VELO_MAX : last;
		ds_gather(c, tx_slot(g, t->count + i)->payload, n);
		stamp(g, t->count + i, n, now);
	}
	show(g, t->count + k - 1, DS_VELO_LAST, last);
	for (unsigned i = k - 1; i-- > 0;)
		show(g, t->count + i, DS_VELO, DS_VELO_MAX);
	shown(t, k);
	ds_count(g, DS_C_TX_VELO, k - 1);
	ds_count(g, DS_C_TX_VELO_LAST, 1);
	return (ssize_t)sent;
}

/* Sends as much of c as the slots take, message by message. Up to THRESHOLD bytes are readable as a
 * whole, or nothing is sent: DS_FAULT. */
static __attribute__((noinline)) ssize_t send_pieces(struct ds_seg *g, struct ds_tx *t, struct ds_cursor *c)
{
	size_t sent = 0, known = 0; /* bytes that were looked at */
	uint64_t now = c->at ? c->at : ds_ticks();
	int last = 0;
	bool fault = false;

	while (c->left) {
		int room = slots_free(g, t, 1 + g->reserve);

		if (room < 0)
			return room;
		if (!room)
			break;
		size_t n = c->left < DS_VELO_MAX ? c->left : DS_VELO_MAX;
		if (sent + n > known) {
			size_t more = c->left < THRESHOLD ? c->left : THRESHOLD;

			fault = !reachable(c, more, false);
			if (__builtin_expect(fault, 0))
				break;
			known = sent + more;
		}
		ds_gather(c, tx_slot(g, t->count)->payload, n);
		last = c->left == 0;
		publish(g, t, last ? DS_VELO_LAST : DS_VELO, (unsigned)n, now);
		sent += n;
		ds_count(g, last ? DS_C_TX_VELO_LAST : DS_C_TX_VELO, 1);
	}
	return sent ? (ssize_t)sent : fault ? DS_FAULT : DS_AGAIN;
}

/* As ds_tx_send, of what goes in VELO messages. */
static inline ssize_t send_velo(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a, struct ds_cursor *c)
{
	unsigned k = c->left <= DS_VELO_MAX ? c->left > 0 : c->left <= THRESHOLD ? (unsigned)((c->left + DS_VELO_MAX - 1) / DS_VELO_MAX) : 0;
	int room = k ? slots_free(g, t, k + g->reserve) : 0;

	if (room < 0)
		return room;
	ssize_t sent = !room ? send_pieces(g, t, c) : k == 1 ? send_one(g, t, c) : send_whole(g, t, c, k);
	if (sent <= 0)
		return sent;
	ds_ring(g, a, DS_ARM_RX);
	own_soon(tx_slot(g, t->count));
	if (__builtin_expect(t->count >= t->turn, 0))
		give_back(g, t);
	return sent;
}

/* As ds_tx_send, of what goes through the ring. */
static __attribute__((noinline)) ssize_t send_ring(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a, struct ds_cursor *c)
{
	size_t sent = 0;
	bool fault = false;

	if (!ds_tx_refresh(g, t))
		return DS_BREACH;
	while (c->left) {
		uint64_t at = 0, advance = 0, n;
		int room = slots_free(g, t, 1 + g->reserve);

		if (room < 0)
			return room;
		if (!room)
			break;
		uint64_t want = c->left < DS_CHUNK ? c->left : DS_CHUNK;
		n = ds_ring_place(g, t, want, &at, &advance);
		if (n < want) { /* look whether there is more by now */
			if (!ds_tx_refresh(g, t))
				return DS_BREACH;
			n = ds_ring_place(g, t, want, &at, &advance);
			if (!n)
				break;
		}
		fault = !reachable(c, n, false);
		if (__builtin_expect(fault, 0))
			break;
		ds_ring_fill(g, t, c, g->txring + at, n);
		uint8_t *p = tx_slot(g, t->count)->payload;
		uint32_t len = (uint32_t)n;
		memset(p, 0, DS_RMA_INFO);
		p[0] = 1;
		memcpy(p + 4, &len, 4);
		memcpy(p + 8, &at, 8);
		memcpy(p + 16, &advance, 8);
		t->next_put = t->put + advance;
		t->next_off = at + n == g->ring ? 0 : at + n;
		publish(g, t, DS_INFO, DS_RMA_INFO, c->at ? c->at : ds_ticks());
		ds_count(g, DS_C_TX_INFO, 1);
		sent += n;
		ds_ring(g, a, DS_ARM_RX);
		if (stopped(g))
			break;
	}
	if (!sent)
		return fault ? DS_FAULT : DS_AGAIN;
	SET(&g->counters[DS_C_RING_USED], t->put - t->freed);
	if (__builtin_expect(t->count >= t->turn, 0))
		give_back(g, t);
	return (ssize_t)sent;
}

ssize_t ds_tx_send(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a, struct ds_cursor *c)
{
	if (__builtin_expect(closed_to_data(g), 0))
		return DS_STOPPED;
	ssize_t n = c->left <= THRESHOLD ? send_velo(g, t, a, c) : send_ring(g, t, a, c);
	if (n > 0)
		ds_count(g, DS_C_SENT, (uint64_t)n);
	return n;
}

/* The messages that n bytes take, of which one more lies at the ring's end. */
static uint64_t messages(size_t n)
{
	return n <= THRESHOLD ? (n + DS_VELO_MAX - 1) / DS_VELO_MAX : (n + DS_CHUNK - 1) / DS_CHUNK + 1;
}

bool ds_tx_whole(const struct ds_seg *g, const struct ds_tx *t, size_t n, bool waits)
{
	/* What it skips at the ring's end is no more than n again: both, and the messages, fit into
	 * the quarters for which ds_tx_room waits. */
	return n <= THRESHOLD || (waits && messages(n) <= g->slots / 4 && n <= ds_ring_window(g, t) / 8);
}

bool ds_tx_fits(struct ds_seg *g, struct ds_tx *t, size_t n)
{
	uint64_t k = messages(n) + g->reserve, skip = n < DS_CHUNK_LEAST ? n : DS_CHUNK_LEAST;

	if (closed_to_data(g))
		return true;
	for (int again = 0; again < 2; again++) {
		if (t->count - t->consumed + k <= g->slots && (n <= THRESHOLD || t->put - t->freed + n + skip <= ds_ring_window(g, t)))
			return true;
		if (!ds_tx_refresh(g, t))
			return true; /* a breach, which who sends will find */
	}
	return false;
}

ssize_t ds_tx_fill(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a, struct ds_cursor *c)
{
	uint64_t at, advance;

	if (closed_to_data(g))
		return DS_STOPPED;
	if (c->left <= THRESHOLD || __atomic_load_n(&g->window, __ATOMIC_RELAXED) < g->ring || ds_seg_peer_relayed(g) || !ds_tx_refresh(g, t) || ds_ring_place(g, t, DS_CHUNK_LEAST, &at, &advance))
		return DS_AGAIN; /* the ring is not what is full, or no more may be under way, or a node carries it */
	ssize_t n = send_velo(g, t, a, c);
	if (n > 0)
		ds_count(g, DS_C_SENT, (uint64_t)n);
	return n;
}

int ds_tx_end(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a, int tag)
{
	int room;

	if (fallen_back(g))
		return DS_STOPPED;
	room = slots_free(g, t, 1);
	if (room <= 0)
		return room ? room : DS_AGAIN;
	if (tag == DS_PAUSE)
		t->paused = t->count;
	bool bare = tag == DS_PAUSE && last_tag(g, t) == DS_PROMOTE;
	publish(g, t, (unsigned)tag, 0, ds_ticks());
	if (!bare) /* else nothing was direct, and nothing goes back */
		ds_count(g, tag == DS_SHUTDOWN ? DS_C_TX_SHUTDOWN : DS_C_TX_DEMOTE, 1);
	ds_ring(g, a, DS_ARM_RX);
	return ds_tx_stands(g, a, (unsigned)tag);
}

int ds_tx_stands(struct ds_seg *g, struct ds_attention *a, unsigned tag)
{
	/* A holder that was killed since may have said so already: the peer goes by that. */
	if (__atomic_load_n(&a->word, __ATOMIC_RELAXED) & DS_STANDS)
		return 0;
	if (fallen_back(g))
		return DS_STOPPED;
	if (tag != DS_SHUTDOWN)
		ds_attend(g, a, DS_STANDS, 0);
	return 0;
}

bool ds_tx_resumed(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a)
{
	if (ACQUIRE(&g->peer->consumed) <= t->paused || fallen_back(g))
		return false;
	ds_attend(g, a, 0, DS_STANDS);
	return true;
}

bool ds_tx_left_paused(struct ds_seg *g, const struct ds_tx *t) { return GET(&g->peer->fallback_slot) <= t->paused; }

int ds_tx_room(struct ds_seg *g, struct ds_tx *t)
{
	if (stopped(g))
		return DS_STOPPED;
	for (int again = 0; again < 2; again++) {
		/* At least what ds_ring_place asks for, and skips at the end of the ring. */
		uint64_t window = ds_ring_window(g, t), least = window / 4 < 2 * DS_CHUNK_LEAST ? 2 * DS_CHUNK_LEAST : window / 4;

		if (t->count - t->consumed + g->reserve <= g->slots - g->slots / 4) {
			if (t->put - t->freed + least <= window)
				return 1;
			if (again && window == ds_ring_span(g, t) && ds_ring_widen(g, t)) { /* as a send would */
				again = 0;
				continue;
			}
		}
		if (!ds_tx_refresh(g, t))
			return DS_BREACH;
	}
	return 0;
}

/* The bytes of data that message count of a queue announces; 0 of another message. */
static uint64_t data_of(const volatile struct ds_slot *s, uint64_t status)
{
	unsigned tag = status >> 32 & 0xff, len = status >> 40 & 0xff;
	uint32_t n;

	if (tag == DS_VELO || tag == DS_VELO_LAST)
		return len <= DS_VELO_MAX ? len : 0;
	if (tag != DS_INFO)
		return 0;
	n = GET32(s, 4);
	return n <= DS_MAX_RMA ? n : 0;
}

uint64_t ds_tx_queued(struct ds_seg *g, struct ds_tx *t)
{
	uint64_t sum = 0;

	if (!ds_tx_refresh(g, t))
		return 0;
	for (uint64_t i = t->consumed; i != t->count; i++)
		sum += data_of(sent_slot(g, i), GET(&sent_slot(g, i)->status));
	return sum;
}

bool ds_tx_unread(struct ds_seg *g, const struct ds_tx *t, uint64_t *sent, bool *left)
{
	uint64_t taken = ACQUIRE(&g->peer->taken), count = GET(&t->count);

	if (!(GET(&g->peer->flags) & DS_TAKES) || count - taken > g->slots)
		return false;
	for (; taken != count; taken++) {
		const volatile struct ds_slot *s = sent_slot(g, taken);
		uint64_t status = GET(&s->status);
		unsigned len = status >> 40 & 0xff;

		if (!data_of(s, status))
			continue;
		*sent = len <= DS_STAMPED ? GET64(s, stamp_at(len)) : GET((const volatile uint64_t *)&g->txstamps[taken % DS_STAMP_RING]);
		*left = taken < GET(&g->peer->left);
		return true;
	}
	return false;
}

int ds_tx_return_begin(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a, uint64_t *slot, uint64_t *off)
{
	uint64_t s = GET(&g->peer->fallback_slot);

	uint32_t o = GET(&g->peer->fallback_off);

	if (!ds_tx_refresh(g, t) || t->count - s > t->count - t->consumed)
		return DS_BREACH;
	if (o && (s == t->count || o > data_of(sent_slot(g, s), GET(&sent_slot(g, s)->status))))
		return DS_BREACH;
	*slot = s;
	*off = o;
	ds_attend(g, a, DS_RETURNED, 0);
	return 0;
}

int ds_tx_return(struct ds_seg *g, struct ds_tx *t, uint64_t *slot, uint64_t *off,
	       ssize_t (*out)(void *, const void *, size_t), void *arg, bool *ended)
{
	for (; *slot != t->count; ++*slot, *off = 0) {
		const volatile struct ds_slot *s = sent_slot(g, *slot);
		uint64_t status = GET(&s->status), n = data_of(s, status);
		const volatile uint8_t *p = s->payload;
		unsigned tag = status >> 32 & 0xff;

		if (tag == DS_SHUTDOWN)
			*ended = true;
		if (tag == DS_INFO) {
			uint64_t at = GET64(s, 8);

			if (n > g->ring || at > g->ring - n)
				return DS_BREACH; /* the peer has written to our queue */
			p = g->txring + at;
		}
		if (*off > n)
			return DS_BREACH;
		while (n > *off) {
			/* To the kernel, which reads each byte once. */
			ssize_t took = out(arg, (const uint8_t *)p + *off, n - *off);

			if (took < 0)
				return DS_AGAIN;
			*off += (uint64_t)took;
		}
	}
	return 0;
}

bool ds_tx_hint(struct ds_seg *g, struct ds_tx *t)
{
	return GET(&g->peer->consumed) != GET(&t->consumed) || GET(&g->peer->freed) != GET(&t->freed) || stopped(g);
}
