#include "segment/segment_inner.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

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

static uint64_t scratch[DS_COUNTERS]; /* counters of a connection without statistics, */
static const uint8_t on; /* which nobody switches off */

int ds_seg_view(struct ds_seg *g, uint8_t *mem, size_t size, int side)
{
	uint8_t h[DS_HEADER];
	uint32_t version, slots;
	uint64_t ring, said;
	size_t rings;

	ds_copy_in(h, mem, sizeof h); /* the only time that it is read */
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
	g->ring = g->window = ring;
	g->slots = slots;
	g->shift = (unsigned)__builtin_ctz(slots);
	g->side = side;
	g->bell = -1;
	g->own = (struct ds_ctrl *)(void *)(mem + DS_CTRL + side * DS_CTRL);
	g->peer = (const volatile struct ds_ctrl *)(void *)(mem + DS_CTRL + !side * DS_CTRL);
	struct ds_slot *queues = (struct ds_slot *)(void *)(mem + DS_QUEUES);
	g->txq = queues + (size_t)side * slots;
	g->rxq = queues + (size_t)!side * slots;
	g->txring = mem + rings + (uint64_t)side * ring;
	g->rxring = mem + rings + (uint64_t)!side * ring;
	uint64_t *stamps = (uint64_t *)(void *)(mem + DS_STAMPS);
	g->txstamps = stamps + (size_t)side * DS_STAMP_RING;
	g->rxstamps = stamps + (size_t)!side * DS_STAMP_RING;
	g->counters = scratch;
	g->off = &on;
	return 0;
}

/* True if the kernel promises no more memory than there is (vm.overcommit_memory = 2): then the
 * first touch of a memfd's page may be a SIGBUS. */
bool ds_map_strict(void)
{
	static int known; /* 1 no, 2 yes */
	char c = 0;

	if (!GET(&known)) {
		int fd = (int)ds_syscall(SYS_openat, AT_FDCWD, "/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);

		if (fd >= 0) {
			if (ds_syscall(SYS_read, fd, &c, 1) < 0)
				c = 0;
			ds_syscall(SYS_close, fd);
		}
		SET(&known, c == '2' ? 2 : 1);
	}
	return GET(&known) == 2;
}

static size_t mapped;

size_t ds_mapped(void) { return GET(&mapped); }

uint8_t *ds_map(int fd, size_t size)
{
	/* Where the program locks what it maps (mlockall), nothing comes into this one at once. */
	void *p = REAL(mmap, NULL, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);

	if (p == MAP_FAILED)
		return NULL;
	if (ds_syscall(SYS_mprotect, p, size, PROT_READ | PROT_WRITE) < 0) {
		REAL(munmap, p, size);
		return NULL;
	}
	/* A core dump would have all pages of it, also those that are not there yet. */
	kernel_madvise(p, size, MADV_DONTDUMP);
	__atomic_fetch_add(&mapped, size, __ATOMIC_RELAXED);
	return p;
}

void ds_unmap(uint8_t *p, size_t size)
{
	REAL(munmap, p, size);
	__atomic_fetch_sub(&mapped, size, __ATOMIC_RELAXED);
}

uint8_t *ds_map_new(int fd, size_t size)
{
	uint8_t *p = ds_map(fd, size);

	if (p && ds_map_strict() && kernel_madvise(p, size, MADV_POPULATE_WRITE) < 0) { /* EFAULT: it would have been SIGBUS */
		ds_unmap(p, size);
		errno = ENOMEM;
		return NULL;
	}
	return p;
}

bool ds_map_lazy(void) { return getauxval(AT_PAGESZ) == 4096 && !ds_map_strict(); }

int ds_seg_create(struct ds_seg *g, const struct ds_info *info, uint32_t slots, uint64_t ring, int *out)
{
	size_t rings, size = ds_seg_size(slots, ring, &rings);
	int saved, fd = kernel_memfd("exnet-ds", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint8_t *mem;

	if (fd < 0)
		return -1;
	if (ds_truncate(fd, size) < 0 || REAL(fcntl, fd, F_ADD_SEALS, SEALS) < 0 || !(mem = ds_map_new(fd, size))) {
		saved = errno;
		REAL(close, fd);
		errno = saved;
		return -1;
	}
	ds_seg_header(mem, info, slots, ring);
	if (ds_seg_view(g, mem, size, 0) < 0) {
		ds_unmap(mem, size);
		REAL(close, fd);
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
	struct statfs fs;
	int seals = REAL(fcntl, fd, F_GET_SEALS, 0);
	uint8_t *mem;

	if (seals < 0 || (seals & SEALS) != SEALS || kernel_fstat(fd, &st) < 0)
		return -1;
	if (kernel_fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC) /* not hugetlbfs, where a missing page is a SIGBUS */
		return -1;
	if (st.st_size < (off_t)least || (size_t)st.st_size > most)
		return -1;
	mem = ds_map(fd, (size_t)st.st_size);
	if (!mem)
		return -1;
	if (ds_seg_view(g, mem, (size_t)st.st_size, side) < 0) {
		ds_unmap(mem, (size_t)st.st_size);
		return -1;
	}
	return 0;
}

void ds_seg_unmap(struct ds_seg *g)
{
	if (g->mem)
		ds_unmap(g->mem, g->size);
	g->mem = NULL;
}

/* ---- control block, wake-up (SPEC 2.2, 4.4, 4.5) ----------------------------- */

bool ds_expedite(void)
{
	return ds_syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

/* Orders what was published before the look at the peer's arming: a fence for the compiler only, if
 * the sleeper pays (SPEC 4.5). */
static inline void waker_barrier(const struct ds_seg *g)
{
	if (g->expedited && (GET(&g->peer->flags) & DS_EXPEDITED))
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
	else
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

uint32_t ds_rings;

/* Rings the bell, unless it was rung for this arming, word, already. */
static void ring(struct ds_seg *g, struct ds_attention *a, uint32_t word)
{
	uint32_t number = (word & ~0xffu) | 1;

	if (GET(&a->rung) == number || g->bell < 0)
		return;
	ds_count(g, DS_C_WAKES, 1);
	int saved = errno;
	/* A raw call: this must not be a cancellation point. */
	ds_syscall(SYS_sendto, g->bell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
	errno = saved;
	SET(&a->rung, number); /* after it: who is killed before has not rung, and its heir does */
	__atomic_fetch_add(&ds_rings, 1, __ATOMIC_RELEASE);
}

void ds_ring(struct ds_seg *g, struct ds_attention *a, uint32_t want)
{
	waker_barrier(g);
	uint32_t word = GET(&g->peer->attention);
	if (__builtin_expect(word & want, 0))
		ring(g, a, word);
}

/* Changes the attention word. The caller has its lock. */
static void change(struct ds_seg *g, struct ds_attention *a, uint32_t set, uint32_t clear)
{
	uint32_t w = (a->word & ~clear) | set;

	if (set & (DS_ARM_RX | DS_ARM_TX))
		w += 1 << 8; /* a new arming; wraps */
	__atomic_store_n(&a->word, w, __ATOMIC_RELAXED); /* ds_tx_stands reads it without this lock */
	__atomic_store_n(&g->own->attention, w, __ATOMIC_SEQ_CST);
}

/* The waker of SPEC 4.4, for a change of state. */
static void tell(struct ds_seg *g, struct ds_attention *a)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	ds_ring(g, a, DS_ARM_RX | DS_ARM_TX);
}

void ds_attend(struct ds_seg *g, struct ds_attention *a, uint32_t set, uint32_t clear)
{
	bool taken = ds_lock(&a->lock, false) != DS_NESTED; /* DS_NESTED: a handler that the library does not know; without the lock, then */
	change(g, a, set, clear);
	if (taken)
		ds_unlock(&a->lock, false);
	if (set & (DS_FALLEN_BACK | DS_CLOSED | DS_RESET | DS_RETURNED | DS_STANDS))
		tell(g, a);
}

void ds_attend_again(struct ds_seg *g, struct ds_attention *a)
{
	ds_attend(g, a, 0, 0);
	tell(g, a);
}

void ds_seg_tell_off(struct ds_seg *g, struct ds_attention *a)
{
	bool taken = ds_lock(&a->lock, false) != DS_NESTED;
	bool off = GET(g->off); /* under the lock: of several threads, the last one has the last word */
	change(g, a, off ? DS_OFF : 0, off ? 0 : DS_OFF);
	if (taken)
		ds_unlock(&a->lock, false);
	tell(g, a);
}

void ds_seg_flags(struct ds_seg *g)
{
	RELEASE(&g->own->flags, DS_TAKES | DS_HEEDS | DS_PAUSES | (g->expedited ? DS_EXPEDITED : 0));
}

void ds_seg_state(struct ds_seg *g, struct ds_attention *a, uint32_t state)
{
	ds_seg_flags(g);
	__atomic_store_n(&g->own->state, state, __ATOMIC_SEQ_CST);
	ds_ring(g, a, DS_ARM_RX | DS_ARM_TX);
}

uint32_t ds_seg_peer_state(const struct ds_seg *g) { return ACQUIRE(&g->peer->state); }
uint32_t ds_seg_peer_attention(const struct ds_seg *g) { return ACQUIRE(&g->peer->attention); }
bool ds_seg_peer_relayed(const struct ds_seg *g)
{
	return (GET(&g->peer->flags) & DS_RELAYED) && (g->side || ACQUIRE(&g->peer->state) == DS_ATTACHED);
}

bool ds_seg_peer_looks(const struct ds_seg *g)
{
	return !g->side || !ds_seg_peer_relayed(g) || ACQUIRE(&g->peer->state) == DS_ATTACHED;
}

bool ds_seg_peer_late(const struct ds_seg *g) { return (GET(&g->peer->flags) & (DS_RELAYED | DS_LATE)) == (DS_RELAYED | DS_LATE); }
bool ds_seg_peer_holds(const struct ds_seg *g) { return (GET(&g->peer->flags) & (DS_RELAYED | DS_HOLDS)) == (DS_RELAYED | DS_HOLDS); }
bool ds_seg_peer_pauses(const struct ds_seg *g) { return GET(&g->peer->flags) & DS_PAUSES; }
bool ds_seg_peer_hardware(const struct ds_seg *g) { return GET(&g->peer->flags) & DS_HARDWARE; }

void ds_seg_tell(struct ds_seg *g, unsigned class, unsigned user_timeout)
{
	SET(&g->own->class, class);
	SET(&g->own->user_timeout, user_timeout);
}

uint32_t ds_seg_peer_cpu(const struct ds_seg *g) { return GET(&g->peer->cpu); }

void ds_seg_cpu(struct ds_seg *g, uint32_t cpu)
{
	if (GET(&g->own->cpu) != cpu)
		SET(&g->own->cpu, cpu);
}

void ds_seg_rang(struct ds_seg *g, uint64_t rings) { SET(&g->own->rings, rings); }

uint64_t ds_seg_peer_rings(const struct ds_seg *g) { return GET(&g->peer->rings); }

void ds_fence(const struct ds_seg *g)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (g->expedited)
		ds_syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

bool ds_reachable(const struct ds_cursor *c, size_t n, bool write)
{
	const struct iovec *v = c->v;

	for (size_t off = c->off; n; off = 0, v++) {
		size_t k = v->iov_len - off < n ? v->iov_len - off : n;

		if (!ds_touchable((const uint8_t *)v->iov_base + off, k, write))
			return false;
		n -= k;
	}
	return true;
}

/* The C library copies much by rep movsb. From AMD's Zen 3 on that takes 16 times as long if the
 * target lies 1 to 15 bytes behind the source, but for whole pages. So it gets little at a time. */
void ds_copy_many(void *to, const void *from, size_t n)
{
	uint8_t *t = to;
	const uint8_t *f = from;

	if ((((uintptr_t)t - (uintptr_t)f) & 4095) - 1 < 15)
		for (; n > DS_FEW; n -= DS_FEW, t += DS_FEW, f += DS_FEW)
			memcpy(t, f, DS_FEW);
	memcpy(t, f, n);
}

void ds_gather_all(struct ds_cursor *c, uint8_t *to, size_t n)
{
	c->left -= n;
	for (;;) {
		size_t k = c->v->iov_len - c->off;

		if (k > n) {
			ds_copy(to, (const uint8_t *)c->v->iov_base + c->off, n);
			c->off += n;
			return;
		}
		if (k)
			ds_copy(to, (const uint8_t *)c->v->iov_base + c->off, k);
		to += k;
		n -= k;
		c->v++;
		c->n--;
		c->off = 0;
		if (!n)
			return;
	}
}
