#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
	THRESHOLD = 480,   /* bytes: a send of up to this travels in VELO messages */
	CHUNK = 32 << 10,  /* bytes of a PUT at most */
	SMALL_CHUNK = 4096, /* no chunk is cut smaller than this by the end of the ring */
	REWIND = 16384,     /* an empty ring is begun anew from here on (SPEC 4.2) */
	RESERVED = 2,      /* slots that data leaves free, for SHUTDOWN and DEMOTE */
	SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
};

#define GET(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define ACQUIRE(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define SET(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define RELEASE(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)

static const char magic[8] = {'E', 'X', 'T', '-', 'D', 'S', 0, 1};

/* ---- making and mapping (SPEC 2, 2.1) --------------------------------------- */

size_t ds_seg_size(uint32_t slots, uint64_t ring, size_t *rings)
{
	*rings = (DS_QUEUES + 2 * (size_t)slots * DS_SLOT + 4095) & ~(size_t)4095;
	return *rings + 2 * ring;
}

void ds_seg_header(uint8_t *m, const struct ds_info *info, uint32_t slots, uint64_t ring)
{
	uint32_t version = 1;
	size_t rings;
	uint64_t size = ds_seg_size(slots, ring, &rings);

	memcpy(m, magic, 8);
	memcpy(m + 8, &version, 4);
	memcpy(m + 12, &slots, 4);
	memcpy(m + 16, &ring, 8);
	memcpy(m + 24, &size, 8);
	memcpy(m + 32, info->nonce, 16);
	memcpy(m + 48, info->addr[0], 16);
	memcpy(m + 64, info->addr[1], 16);
	memcpy(m + 80, &info->port[0], 2);
	memcpy(m + 82, &info->port[1], 2);
	m[84] = info->port[1] & 0xf;
}

static uint64_t scratch[DS_COUNTERS]; /* counters of who has none */

int ds_seg_view(struct ds_seg *g, uint8_t *mem, size_t size, int side)
{
	uint8_t h[DS_HEADER];
	uint32_t version, slots;
	uint64_t ring, said;
	size_t rings;

	memcpy(h, mem, sizeof h); /* the only time that it is read */
	memcpy(&version, h + 8, 4);
	memcpy(&slots, h + 12, 4);
	memcpy(&ring, h + 16, 8);
	memcpy(&said, h + 24, 8);
	if (memcmp(h, magic, 8) != 0 || version != 1)
		return -1;
	if (slots < DS_MIN_SLOTS || slots > DS_MAX_SLOTS || (slots & (slots - 1)))
		return -1;
	if (ring < DS_MIN_RING || ring > DS_MAX_RING || ring % 4096)
		return -1;
	if (ds_seg_size(slots, ring, &rings) != size || said != size)
		return -1;
	memset(g, 0, sizeof *g);
	memcpy(g->info.nonce, h + 32, 16);
	memcpy(g->info.addr[0], h + 48, 16);
	memcpy(g->info.addr[1], h + 64, 16);
	memcpy(&g->info.port[0], h + 80, 2);
	memcpy(&g->info.port[1], h + 82, 2);
	if (h[84] != (g->info.port[1] & 0xf))
		return -1;
	g->mem = mem;
	g->size = size;
	g->ring = ring;
	g->slots = slots;
	g->shift = (unsigned)__builtin_ctz(slots);
	g->side = side;
	g->bell = -1;
	g->own = (struct ds_ctrl *)(void *)(mem + DS_CTRL + side * DS_CTRL);
	g->peer = (struct ds_ctrl *)(void *)(mem + DS_CTRL + !side * DS_CTRL);
	struct ds_slot *queues = (struct ds_slot *)(void *)(mem + DS_QUEUES);
	g->txq = queues + (size_t)side * slots;
	g->rxq = queues + (size_t)!side * slots;
	g->txring = mem + rings + (uint64_t)side * ring;
	g->rxring = mem + rings + (uint64_t)!side * ring;
	g->counters = scratch;
	return 0;
}

static uint8_t *map(int fd, size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

int ds_seg_create(struct ds_seg *g, const struct ds_info *info, uint32_t slots, uint64_t ring, int *out)
{
	size_t rings, size = ds_seg_size(slots, ring, &rings);
	int saved, fd = memfd_create("exnet-ds", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint8_t *mem;

	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)size) < 0 || REAL(fcntl)(fd, F_ADD_SEALS, SEALS) < 0 || !(mem = map(fd, size))) {
		saved = errno;
		REAL(close)(fd);
		errno = saved;
		return -1;
	}
	ds_seg_header(mem, info, slots, ring);
	if (ds_seg_view(g, mem, size, 0) < 0) {
		munmap(mem, size);
		REAL(close)(fd);
		errno = EINVAL;
		return -1;
	}
	RELEASE(&g->own->state, DS_OFFERED);
	*out = fd;
	return 0;
}

int ds_seg_map(struct ds_seg *g, int fd, int side)
{
	size_t rings, least = ds_seg_size(DS_MIN_SLOTS, DS_MIN_RING, &rings);
	size_t most = ds_seg_size(DS_MAX_SLOTS, DS_MAX_RING, &rings);
	struct stat st;
	int seals = REAL(fcntl)(fd, F_GET_SEALS, 0);
	uint8_t *mem;

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0)
		return -1;
	if (st.st_size < (off_t)least || (size_t)st.st_size > most)
		return -1;
	mem = map(fd, (size_t)st.st_size);
	if (!mem)
		return -1;
	if (ds_seg_view(g, mem, (size_t)st.st_size, side) < 0) {
		munmap(mem, (size_t)st.st_size);
		return -1;
	}
	return 0;
}

void ds_seg_unmap(struct ds_seg *g)
{
	if (g->mem)
		munmap(g->mem, g->size);
	g->mem = NULL;
}

/* ---- control block, wake-up (SPEC 2.2, 4.4, 4.5) ----------------------------- */

bool ds_expedite(void)
{
	return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

static inline void waker_barrier(const struct ds_seg *g)
{
	if (g->expedited && (GET(&g->peer->flags) & DS_EXPEDITED))
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
	else
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void ring(struct ds_seg *g, struct ds_attention *a, uint32_t word)
{
	uint32_t number = (word & ~0xffu) | 1;

	if (GET(&a->rung) == number || g->bell < 0)
		return;
	SET(&a->rung, number);
	ds_count(g, DS_C_WAKES, 1);
	int saved = errno;
	/* A raw call: nothing of this may be a cancellation point. */
	syscall(SYS_sendto, g->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	errno = saved;
}

void ds_ring(struct ds_seg *g, struct ds_attention *a, uint32_t want)
{
	waker_barrier(g);
	uint32_t word = GET(&g->peer->attention);
	if (__builtin_expect(word & want, 0))
		ring(g, a, word);
}

void ds_attend(struct ds_seg *g, struct ds_attention *a, uint32_t set, uint32_t clear)
{
	uint32_t w = a->word;

	w = (w & ~clear) | set;
	if (set & (DS_ARM_RX | DS_ARM_TX))
		w += 1 << 8; /* a new arming; wraps */
	a->word = w;
	__atomic_store_n(&g->own->attention, w, __ATOMIC_SEQ_CST);
	if (set & (DS_FROZEN | DS_CLOSED | DS_RESET | DS_ROLLED | DS_STANDS)) {
		/* The waker of 4.4, of a change of state. */
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		ds_ring(g, a, DS_ARM_RX | DS_ARM_TX);
	}
}

void ds_seg_state(struct ds_seg *g, struct ds_attention *a, uint32_t state)
{
	SET(&g->own->flags, g->expedited ? DS_EXPEDITED : 0);
	__atomic_store_n(&g->own->state, state, __ATOMIC_SEQ_CST);
	ds_ring(g, a, DS_ARM_RX | DS_ARM_TX);
}

uint32_t ds_seg_peer_state(const struct ds_seg *g) { return ACQUIRE(&g->peer->state); }
uint32_t ds_seg_peer_attention(const struct ds_seg *g) { return ACQUIRE(&g->peer->attention); }
uint32_t ds_seg_peer_cpu(const struct ds_seg *g) { return GET(&g->peer->cpu); }

void ds_seg_cpu(struct ds_seg *g, uint32_t cpu)
{
	if (GET(&g->own->cpu) != cpu)
		SET(&g->own->cpu, cpu);
}

/* ---- sending (SPEC 2.3, 4.1, 4.2) -------------------------------------------- */

static inline struct ds_slot *tx_slot(struct ds_seg *g, uint64_t count) { return &g->txq[count & (g->slots - 1)]; }
static inline struct ds_slot *rx_slot(struct ds_seg *g, uint64_t count) { return &g->rxq[count & (g->slots - 1)]; }
static inline uint32_t lap(const struct ds_seg *g, uint64_t count) { return (uint32_t)((count >> g->shift) + 1); }

/* Reads consumed and freed of the peer again. */
static inline bool refresh(struct ds_seg *g, struct ds_tx *t)
{
	uint64_t consumed = ACQUIRE(&g->peer->consumed), freed = ACQUIRE(&g->peer->freed);

	if (t->count - consumed > g->slots || t->put - freed > g->ring)
		return false;
	SET(&t->consumed, consumed);
	SET(&t->freed, freed);
	return true;
}

/* Are n slots beyond those in use? */
static inline int slots_free(struct ds_seg *g, struct ds_tx *t, uint32_t n)
{
	if (t->count - t->consumed + n <= g->slots)
		return 1;
	if (!refresh(g, t))
		return DS_BREACH;
	return t->count - t->consumed + n <= g->slots;
}

static inline void publish(struct ds_seg *g, struct ds_tx *t, unsigned tag, unsigned len)
{
	RELEASE(&tx_slot(g, t->count)->status, (uint64_t)lap(g, t->count) | (uint64_t)tag << 32 | (uint64_t)len << 40);
	t->put = t->next_put;
	t->off = t->next_off;
	__atomic_signal_fence(__ATOMIC_RELEASE);
	SET(&t->count, t->count + 1);
}

void ds_tx_recover(struct ds_seg *g, struct ds_tx *t)
{
	if ((uint32_t)GET(&tx_slot(g, t->count)->status) == lap(g, t->count)) {
		t->put = t->next_put;
		t->off = t->next_off;
		t->count++;
	}
	t->next_put = t->put;
	t->next_off = t->off;
}

static inline void gather(struct ds_cursor *c, uint8_t *to, size_t n)
{
	c->left -= n;
	for (;;) {
		size_t k = c->v->iov_len - c->off;

		if (k > n) {
			memcpy(to, (const uint8_t *)c->v->iov_base + c->off, n);
			c->off += n;
			return;
		}
		if (k)
			memcpy(to, (const uint8_t *)c->v->iov_base + c->off, k);
		to += k;
		n -= k;
		c->v++;
		c->n--;
		c->off = 0;
		if (!n)
			return;
	}
}

static inline bool frozen(struct ds_seg *g) { return GET(&g->peer->attention) & DS_FROZEN; }
static inline bool stopped(struct ds_seg *g) { return GET(&g->peer->attention) & (DS_FROZEN | DS_CLOSED | DS_RESET); }

int ds_tx_promote(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a, uint64_t carried)
{
	if (stopped(g))
		return DS_STOPPED;
	memcpy(tx_slot(g, t->count)->payload, &carried, 8);
	publish(g, t, DS_PROMOTE, 8);
	ds_ring(g, a, DS_ARM_RX);
	return 0;
}

static ssize_t send_velo(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a, struct ds_cursor *c)
{
	size_t sent = 0;
	int last = 0;

	while (c->left) {
		int room = slots_free(g, t, 1 + RESERVED);

		if (room < 0)
			return room;
		if (!room)
			break;
		size_t n = c->left < DS_VELO_MAX ? c->left : DS_VELO_MAX;
		gather(c, tx_slot(g, t->count)->payload, n);
		last = c->left == 0;
		publish(g, t, last ? DS_VELO_LAST : DS_VELO, (unsigned)n);
		sent += n;
		ds_count(g, last ? DS_C_TX_VELO_LAST : DS_C_TX_VELO, 1);
	}
	if (!sent)
		return DS_AGAIN;
	ds_ring(g, a, DS_ARM_RX);
	return (ssize_t)sent;
}

/* Where up to want bytes can lie in the ring: how many, and the advance; 0: no room. */
static uint64_t place(struct ds_seg *g, struct ds_tx *t, uint64_t want, uint64_t *at, uint64_t *advance)
{
	uint64_t room = g->ring - (t->put - t->freed), least = want < SMALL_CHUNK ? want : SMALL_CHUNK;
	uint64_t off = t->put == t->freed && t->off >= REWIND ? 0 : t->off, skip = 0, end = g->ring - off;

	if (end < least) { /* too little before the end of the ring */
		skip = end;
		off = 0;
		if (room < skip)
			return 0;
		room -= skip;
		end = g->ring;
	}
	if (room < least)
		return 0;
	if (want > room)
		want = room;
	if (want > end)
		want = end;
	*at = off;
	*advance = want + skip;
	return want;
}

static ssize_t send_ring(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a, struct ds_cursor *c)
{
	size_t sent = 0;

	if (!refresh(g, t))
		return DS_BREACH;
	while (c->left) {
		uint64_t at = 0, advance = 0, n;
		int room = slots_free(g, t, 1 + RESERVED);

		if (room < 0)
			return room;
		if (!room)
			break;
		uint64_t want = c->left < CHUNK ? c->left : CHUNK;
		n = place(g, t, want, &at, &advance);
		if (n < want) { /* look whether there is more by now */
			if (!refresh(g, t))
				return DS_BREACH;
			n = place(g, t, want, &at, &advance);
			if (!n)
				break;
		}
		gather(c, g->txring + at, n);
		uint8_t *p = tx_slot(g, t->count)->payload;
		uint32_t len = (uint32_t)n;
		memset(p, 0, DS_RMA_INFO);
		p[0] = 1;
		memcpy(p + 4, &len, 4);
		memcpy(p + 8, &at, 8);
		memcpy(p + 16, &advance, 8);
		t->next_put = t->put + advance;
		t->next_off = at + n == g->ring ? 0 : at + n;
		publish(g, t, DS_INFO, DS_RMA_INFO);
		ds_count(g, DS_C_TX_INFO, 1);
		sent += n;
		ds_ring(g, a, DS_ARM_RX);
		if (stopped(g))
			break;
	}
	if (!sent)
		return DS_AGAIN;
	SET(&g->counters[DS_C_RING_USED], t->put - t->freed);
	return (ssize_t)sent;
}

ssize_t ds_tx_send(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a, struct ds_cursor *c)
{
	if (__builtin_expect(stopped(g), 0))
		return DS_STOPPED;
	ssize_t n = c->left <= THRESHOLD ? send_velo(g, t, a, c) : send_ring(g, t, a, c);
	if (n > 0)
		ds_count(g, DS_C_SENT, (uint64_t)n);
	return n;
}

int ds_tx_end(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a, int tag)
{
	int room;

	if (frozen(g))
		return DS_STOPPED;
	room = slots_free(g, t, 1);
	if (room <= 0) /* what is reserved cannot be used up but by a breach */
		return DS_BREACH;
	publish(g, t, (unsigned)tag, 0);
	ds_count(g, tag == DS_SHUTDOWN ? DS_C_TX_SHUTDOWN : DS_C_TX_DEMOTE, 1);
	ds_ring(g, a, DS_ARM_RX);
	if (frozen(g))
		return DS_STOPPED;
	if (tag == DS_DEMOTE)
		ds_attend(g, a, DS_STANDS, 0);
	return 0;
}

int ds_tx_room(struct ds_seg *g, struct ds_tx *t)
{
	if (stopped(g))
		return DS_STOPPED;
	for (int again = 0; again < 2; again++) {
		if (t->count - t->consumed + RESERVED <= g->slots - g->slots / 4 && t->put - t->freed <= g->ring - g->ring / 4)
			return 1;
		if (!refresh(g, t))
			return DS_BREACH;
	}
	return 0;
}

/* The bytes of data that message count of a queue announces; 0 of another message. */
static uint64_t data_of(const struct ds_slot *s, uint64_t status)
{
	unsigned tag = status >> 32 & 0xff, len = status >> 40 & 0xff;
	uint32_t n;

	if (tag == DS_VELO || tag == DS_VELO_LAST)
		return len <= DS_VELO_MAX ? len : 0;
	if (tag != DS_INFO)
		return 0;
	n = GET((const uint32_t *)(const void *)(s->payload + 4));
	return n <= DS_MAX_RMA ? n : 0;
}

uint64_t ds_tx_queued(struct ds_seg *g, struct ds_tx *t)
{
	uint64_t sum = 0;

	if (!refresh(g, t))
		return 0;
	for (uint64_t i = t->consumed; i != t->count; i++)
		sum += data_of(tx_slot(g, i), GET(&tx_slot(g, i)->status));
	return sum;
}

int ds_tx_roll_begin(struct ds_seg *g, struct ds_tx *t, struct ds_attention *a, uint64_t *slot, uint64_t *off)
{
	uint64_t s = GET(&g->peer->frozen_slot);

	if (!refresh(g, t) || t->count - s > t->count - t->consumed)
		return DS_BREACH;
	*slot = s;
	*off = GET(&g->peer->frozen_off);
	ds_attend(g, a, DS_ROLLED, 0);
	return 0;
}

int ds_tx_roll(struct ds_seg *g, struct ds_tx *t, uint64_t *slot, uint64_t *off,
	       ssize_t (*out)(void *, const void *, size_t), void *arg, bool *ended)
{
	for (; *slot != t->count; ++*slot, *off = 0) {
		struct ds_slot *s = tx_slot(g, *slot);
		uint64_t status = GET(&s->status), n = data_of(s, status);
		const uint8_t *p = s->payload;
		unsigned tag = status >> 32 & 0xff;

		if (tag == DS_SHUTDOWN)
			*ended = true;
		if (tag == DS_INFO) {
			uint64_t at;

			memcpy(&at, s->payload + 8, 8);
			if (n > g->ring || at > g->ring - n)
				return DS_BREACH; /* the peer has written to our queue */
			p = g->txring + at;
		}
		if (*off > n)
			return DS_BREACH;
		while (n > *off) {
			ssize_t took = out(arg, p + *off, n - *off);

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

/* ---- receiving (SPEC 2.3, 5.3 to 5.5) ---------------------------------------- */

static inline void commit(struct ds_rx *r, const struct ds_pos *p)
{
	uint32_t next = !(r->cur & 1);

	SET(&r->pos[next].count, p->count);
	r->pos[next].freed = p->freed;
	r->pos[next].off = p->off;
	RELEASE(&r->cur, next);
}

static void give_back(struct ds_seg *g, struct ds_rx *r, struct ds_attention *a, const struct ds_pos *p)
{
	if (p->count == r->consumed && p->freed == r->freed)
		return;
	if (p->freed != r->freed)
		ds_count(g, DS_C_TX_AVAIL, 1);
	r->consumed = p->count;
	r->freed = p->freed;
	RELEASE(&g->own->freed, p->freed);
	RELEASE(&g->own->consumed, p->count);
	ds_ring(g, a, DS_ARM_TX);
}

static inline size_t scatter(struct ds_cursor *c, const uint8_t *from, size_t n, bool discard)
{
	size_t done = 0;

	if (n > c->left)
		n = c->left;
	c->left -= n;
	while (done < n) {
		size_t k = c->v->iov_len - c->off;

		if (k > n - done)
			k = n - done;
		if (k && !discard)
			memcpy((uint8_t *)c->v->iov_base + c->off, from + done, k);
		done += k;
		c->off += k;
		if (c->off == c->v->iov_len && (done < n || c->left)) {
			c->v++;
			c->n--;
			c->off = 0;
		}
	}
	return n;
}

/* A message of the inbound queue, read once and checked. */
struct message {
	unsigned tag;
	const uint8_t *data;
	uint64_t len, advance;
};

/* 1: here is message p->count; DS_AGAIN; DS_BREACH. */
static inline int look(struct ds_seg *g, const struct ds_pos *p, struct message *m)
{
	struct ds_slot *s = rx_slot(g, p->count);
	uint64_t status = ACQUIRE(&s->status);
	unsigned len = status >> 40 & 0xff;

	if ((uint32_t)status != lap(g, p->count))
		return DS_AGAIN;
	m->tag = status >> 32 & 0xff;
	m->advance = 0;
	switch (m->tag) {
	case DS_VELO:
	case DS_VELO_LAST:
		m->data = s->payload;
		m->len = len;
		return len >= 1 && len <= DS_VELO_MAX && p->off < len ? 1 : DS_BREACH;
	case DS_INFO: {
		uint32_t n = GET((uint32_t *)(void *)(s->payload + 4));
		uint64_t at = GET((uint64_t *)(void *)(s->payload + 8));
		uint64_t advance = GET((uint64_t *)(void *)(s->payload + 16));

		if (len != DS_RMA_INFO || s->payload[0] != 1 || n < 1 || n > DS_MAX_RMA || n > g->ring || at > g->ring - n ||
		    advance < n || advance > g->ring || p->off >= n)
			return DS_BREACH;
		m->data = g->rxring + at;
		m->len = n;
		m->advance = advance;
		return 1;
	}
	case DS_SHUTDOWN:
	case DS_DEMOTE:
		return len == 0 ? 1 : DS_BREACH;
	case DS_PROMOTE:
		return len == 8 && p->count == 0 ? 1 : DS_BREACH;
	}
	return DS_BREACH;
}

int ds_rx_promoted(struct ds_seg *g, struct ds_rx *r, struct ds_attention *a, uint64_t *carried)
{
	struct ds_pos p = r->pos[r->cur & 1];
	struct message m;

	if (p.count)
		return DS_BREACH;
	int got = look(g, &p, &m);
	if (got == DS_AGAIN)
		return 0;
	if (got != 1 || m.tag != DS_PROMOTE)
		return DS_BREACH;
	*carried = GET((uint64_t *)(void *)rx_slot(g, 0)->payload);
	p.count = 1;
	commit(r, &p);
	give_back(g, r, a, &p);
	return 1;
}

ssize_t ds_rx_recv(struct ds_seg *g, struct ds_rx *r, struct ds_attention *a, struct ds_cursor *c, bool peek, bool discard)
{
	struct ds_pos p = r->pos[r->cur & 1];
	struct message m;
	size_t got = 0;
	int why = DS_AGAIN;

	while (c->left) {
		why = look(g, &p, &m);
		if (why != 1)
			break;
		if (m.tag >= DS_SHUTDOWN) {
			why = m.tag == DS_SHUTDOWN ? DS_END : m.tag == DS_DEMOTE ? DS_DEMOTED : DS_BREACH;
			break;
		}
		size_t n = scatter(c, m.data + p.off, m.len - p.off, discard);
		got += n;
		if (n < m.len - p.off) {
			p.off += (uint32_t)n;
			break;
		}
		p.off = 0;
		p.count++;
		p.freed += m.advance;
		if (!peek) {
			ds_count(g, m.tag - DS_VELO + DS_C_RX_VELO, 1);
			if (m.advance) { /* the sender fills it while the next one is copied */
				commit(r, &p);
				give_back(g, r, a, &p);
			}
		}
	}
	if (!got) {
		if (why == DS_AGAIN && !peek)
			give_back(g, r, a, &p);
		return why;
	}
	if (!peek) {
		commit(r, &p);
		ds_count(g, DS_C_RECEIVED, got);
		if (p.count - r->consumed >= g->slots / 4 || (GET(&g->peer->attention) & DS_ARM_TX))
			give_back(g, r, a, &p);
	}
	return why == DS_BREACH ? DS_BREACH : (ssize_t)got;
}

int ds_rx_look(struct ds_seg *g, struct ds_rx *r)
{
	struct ds_pos p = r->pos[ACQUIRE(&r->cur) & 1];
	struct message m;
	int got = look(g, &p, &m);

	if (got != 1 || m.tag <= DS_INFO)
		return got;
	return m.tag == DS_SHUTDOWN ? DS_END : m.tag == DS_DEMOTE ? DS_DEMOTED : m.tag == DS_PROMOTE ? DS_AGAIN : DS_BREACH;
}

uint64_t ds_rx_readable(struct ds_seg *g, struct ds_rx *r)
{
	struct ds_pos p = r->pos[r->cur & 1];
	struct message m;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < g->slots && look(g, &p, &m) == 1 && m.tag <= DS_INFO; i++) {
		sum += m.len - p.off;
		p.off = 0;
		p.count++;
	}
	return sum;
}

/* Does the queue hold the end of the direction? */
static bool ends(struct ds_seg *g, struct ds_pos p)
{
	struct message m;

	for (uint32_t i = 0; i < g->slots && look(g, &p, &m) == 1; i++, p.count++, p.off = 0)
		if (m.tag == DS_SHUTDOWN || m.tag == DS_DEMOTE)
			return true;
	return false;
}

int ds_rx_freeze(struct ds_seg *g, struct ds_rx *r, struct ds_attention *a)
{
	struct ds_pos p = r->pos[r->cur & 1];

	if (ends(g, p))
		return DS_AGAIN;
	SET(&g->own->frozen_slot, p.count);
	SET(&g->own->frozen_off, p.off);
	ds_attend(g, a, DS_FROZEN, 0);
	ds_fence(g);
	return !ends(g, p);
}

void ds_fence(const struct ds_seg *g)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (g->expedited)
		syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

bool ds_rx_hint(struct ds_seg *g, struct ds_rx *r)
{
	uint64_t count = GET(&r->pos[ACQUIRE(&r->cur) & 1].count);

	return (uint32_t)GET(&rx_slot(g, count)->status) == lap(g, count) ||
	       (GET(&g->peer->attention) & (DS_CLOSED | DS_RESET | DS_ROLLED | DS_STANDS));
}
