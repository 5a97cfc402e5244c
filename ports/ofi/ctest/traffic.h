// traffic.h: two endpoints do what programs do, in any order, and everything is checked: which
// message a receive gets, its bytes, the order of completions, that each operation ends once, and
// what was sent before an end. The ends may be of two processes, with what they check by in memory
// of both, and each may have threads.
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include <stdatomic.h>
#include <sys/mman.h>

#include "pair.h"
#include "seeded.h"

enum {
	MOST = 1200000, // bytes of a message
	REGIONS = 3,
	REGION = 400000,
	OPS = 200,         // of an end, at a time
	HISTORY = 1 << 16, // messages of an end, from one connection to the next
};

enum what { SENT, RECEIVED, WRITTEN, READ };

// An operation that was posted.
struct posted {
	enum what what;
	bool pending, cancelled;
	bool quiet;   // a success is not told
	bool refused; // it has to fail with FI_EACCES
	size_t size;
	uint64_t number; // of a send
	int region;      // of a write or read
	uint8_t *bytes, *want;
	struct iovec iov[IOVS];
	unsigned count;
};

// A message on its way.
struct message {
	size_t size;
	uint64_t number, data;
	bool has_data;
};

struct end {
	struct side side;
	pthread_mutex_t lock; // where threads share it
	struct posted ops[OPS];
	struct posted *receives[OPS]; // in order
	unsigned receives_count;
	struct posted *sends[OPS]; // that tell of their success, in order
	unsigned sends_count;
	struct message messages[HISTORY]; // to the other end
	_Atomic uint64_t sent, taken;     // taken: of those, what the other end has received
	_Atomic uint64_t certain;         // what it has to receive, whatever ends
	uint64_t begun, awaited;  // operations and receives of the side, since it was opened
	uint64_t datas[HISTORY]; // of writes
	_Atomic uint64_t datas_sent, datas_taken;
	uint8_t *memory[REGIONS], *shadow[REGIONS];       // shadow: what the other end has written
	struct fid_mr *mr[REGIONS];
	atomic_bool over; // it has shut down, or closed, or was killed
};

static struct end *ends;        // two
static bool together = true; // this process has both
static bool lazy;            // this process posts few receives, and what comes is held

static inline struct end *other(struct end *e) { return e == &ends[0] ? &ends[1] : &ends[0]; }

static inline uint8_t byte(uint64_t number, size_t i) { return (uint8_t)(number * 37 + i * 11 + (i >> 8)); }

static inline void fill(uint8_t *to, size_t n, uint64_t number)
{
	for (size_t i = 0; i < n; i++)
		to[i] = byte(number, i);
}

static inline size_t some_size(size_t most)
{
	static const size_t around[] = {0, 8, 104, 112, 120, 1024, 4096, 16384, 65536, 131072, 262144, 400000, 1100000};
	size_t at = around[any(sizeof(around) / sizeof(*around) - any(4) * 3)], n = at + any(3) - (at > 0);
	if (any(4) == 0)
		n = any(at + 1);
	return n < most ? n : most;
}

static inline struct posted *room(struct end *e)
{
	for (unsigned i = 0; i < OPS; i++)
		if (!e->ops[i].pending) {
			e->ops[i] = (struct posted){.pending = true};
			return &e->ops[i];
		}
	return NULL;
}

// crowds returns whether an end has begun so much that receives may have no room.
static inline bool crowds(const struct end *e)
{
	unsigned n = 0;
	for (unsigned i = 0; i < OPS; i++)
		n += e->ops[i].pending && e->ops[i].what != RECEIVED;
	return !together && n >= OPS / 2;
}

static inline void ends_op(struct posted *o)
{
	ask(o->pending);
	o->pending = false;
	free(o->bytes);
	free(o->want);
}

// forgets ends an operation that has succeeded, and tells nothing.
static inline void forgets(struct posted *o)
{
	ask(o->quiet && !o->refused && (o->what != READ || memcmp(o->bytes, o->want, o->size) == 0));
	ends_op(o);
}

static inline void drop(struct posted **list, unsigned *count, struct posted *o)
{
	for (unsigned i = 0; i < *count; i++)
		if (list[i] == o) {
			memmove(&list[i], &list[i + 1], (--*count - i) * sizeof(*list));
			return;
		}
	ask(false);
}

// cut divides an operation's bytes.
static inline void cut(struct posted *o)
{
	size_t at = 0;
	o->count = 1 + (unsigned)any(IOVS);
	for (unsigned i = 0; i < o->count; i++) {
		size_t n = i + 1 == o->count ? o->size - at : any(o->size - at + 1);
		o->iov[i] = (struct iovec){o->bytes + at, n};
		at += n;
	}
}

static inline bool fails(ssize_t r, struct end *e)
{
	if (r == 0)
		return false;
	ask(r == -FI_EAGAIN || (r == -FI_ECONNABORTED && (e->over || other(e)->over)));
	return true;
}

static inline void sends_one(struct end *e)
{
	static _Atomic uint64_t numbers;
	struct posted *o = crowds(e) ? NULL : room(e);
	if (o == NULL || e->sent >= HISTORY - 1)
		return;
	struct message m = {.size = some_size(MOST), .number = ++numbers, .data = any(1ull << 40), .has_data = any(3) == 0};
	uint64_t flags = (any(4) == 0 ? 0 : FI_COMPLETION) | (any(4) == 0 ? FI_DELIVERY_COMPLETE : 0) | (m.has_data ? FI_REMOTE_CQ_DATA : 0);
	if (m.size <= INLINE && any(2) == 0)
		flags |= FI_INJECT;
	o->what = SENT;
	o->size = m.size;
	o->quiet = !(flags & FI_COMPLETION);
	o->number = e->sent;
	o->bytes = malloc(m.size + 1);
	fill(o->bytes, m.size, m.number);
	cut(o);
	e->messages[e->sent] = m;
	e->sent++; // first: it may arrive before the call returns
	e->sends[e->sends_count++] = o;
	ssize_t r = fi_sendmsg(e->side.ep, &(struct fi_msg){.msg_iov = o->iov, .iov_count = o->count, .context = o, .data = m.data}, flags);
	if (fails(r, e)) {
		e->sent--;
		e->sends_count--;
		ends_op(o);
		return;
	}
	e->begun++;
	if (flags & FI_INJECT)
		memset(o->bytes, 0x55, m.size);
}

static inline void receives_one(struct end *e)
{
	struct posted *o = lazy && any(16) > 0 ? NULL : room(e);
	if (o == NULL)
		return;
	o->what = RECEIVED;
	o->size = any(8) == 0 ? some_size(MOST) : MOST;
	o->bytes = malloc(o->size + 1);
	cut(o);
	ssize_t r = fi_recvmsg(e->side.ep, &(struct fi_msg){.msg_iov = o->iov, .iov_count = o->count, .context = o}, FI_COMPLETION);
	if (fails(r, e)) {
		ends_op(o);
		return;
	}
	e->awaited++;
	e->receives[e->receives_count++] = o;
}

static inline bool busy(struct end *e, int region)
{
	for (unsigned i = 0; i < OPS; i++)
		if (e->ops[i].pending && e->ops[i].what >= WRITTEN && e->ops[i].region == region)
			return true;
	return false;
}

static inline bool reading(struct end *e, int region)
{
	for (unsigned i = 0; i < OPS; i++)
		if (e->ops[i].pending && e->ops[i].what == READ && e->ops[i].region == region)
			return true;
	return false;
}

static inline void rma_one(struct end *e, bool write)
{
	static _Atomic uint64_t numbers = 1 << 20;
	struct end *far = other(e);
	const int k = (int)any(REGIONS);
	if (write && reading(e, k))
		return;
	struct posted *o = crowds(e) ? NULL : room(e);
	if (o == NULL)
		return;
	o->what = write ? WRITTEN : READ;
	o->region = k;
	o->size = some_size(REGION);
	size_t off = any(REGION - o->size + 1);
	o->refused = far->mr[k] == NULL || any(30) == 0;
	uint64_t key = far->mr[k] == NULL || !o->refused ? (uint64_t)k + 1 : 99, data = any(1ull << 50);
	if (o->refused && far->mr[k] != NULL && any(2) == 0) {
		key = (uint64_t)k + 1;
		off = REGION - o->size + 1;
	}
	o->bytes = malloc(o->size + 1);
	bool has_data = write && any(4) == 0 && e->datas_sent < HISTORY;
	cut(o);
	if (write)
		fill(o->bytes, o->size, ++numbers);
	uint64_t flags = (any(4) == 0 ? 0 : FI_COMPLETION) | (has_data ? FI_REMOTE_CQ_DATA : 0) | (write && o->size <= INLINE && any(2) ? FI_INJECT : 0);
	o->quiet = !(flags & FI_COMPLETION);
	if (!write && !o->refused) {
		o->want = malloc(o->size + 1);
		memcpy(o->want, far->shadow[k] + off, o->size);
	}
	struct fi_rma_iov there = {off, o->size, key};
	struct fi_msg_rma m = {.msg_iov = o->iov, .iov_count = o->count, .rma_iov = &there, .rma_iov_count = 1, .context = o, .data = data};
	has_data = has_data && !o->refused;
	if (has_data) {
		e->datas[e->datas_sent] = data;
		e->datas_sent++;
	}
	ssize_t r = write ? fi_writemsg(e->side.ep, &m, flags) : fi_readmsg(e->side.ep, &m, flags);
	if (fails(r, e)) {
		if (has_data)
			e->datas_sent--;
		ends_op(o);
		return;
	}
	e->begun++;
	if (write && !o->refused)
		memcpy(far->shadow[k] + off, o->bytes, o->size);
	if (flags & FI_INJECT)
		memset(o->bytes, 0x66, o->size);
}

static inline void registers(struct end *e, int k)
{
	ask(fi_mr_reg(e->side.domain, e->memory[k], REGION, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, (uint64_t)k + 1, 0, &e->mr[k], e) == 0);
}

static inline void region(struct end *e)
{
	const int k = (int)any(REGIONS);
	if (!together || busy(other(e), k)) // else a refusal may be right
		return;
	if (e->mr[k] != NULL) {
		int r = fi_close(&e->mr[k]->fid);
		ask(r == 0 || r == -FI_EBUSY);
		if (r == 0)
			e->mr[k] = NULL;
	} else {
		registers(e, k);
	}
}

static inline void cancels(struct end *e)
{
	if (e->receives_count == 0)
		return;
	struct posted *o = e->receives[any(e->receives_count)];
	if (o->cancelled)
		return;
	ssize_t r = fi_cancel(&e->side.ep->fid, o);
	ask(r == 0 || r == -FI_ENOENT);
	if (r == 0) {
		o->cancelled = true;
		drop(e->receives, &e->receives_count, o);
	}
}

// got works off a receive that has ended well, or was too short.
static inline void got(struct end *e, struct posted *o, size_t len, size_t lost, uint64_t flags, uint64_t data)
{
	struct end *far = other(e);
	ask(e->receives_count > 0 && e->receives[0] == o && !o->cancelled);
	ask(far->taken < far->sent);
	struct message *m = &far->messages[far->taken++];
	ask(len + lost == m->size && (lost > 0) == (m->size > o->size) && (lost == 0 || len == o->size));
	ask(!!(flags & FI_REMOTE_CQ_DATA) == m->has_data && (lost > 0 || !m->has_data || data == m->data));
	for (size_t i = 0; i < len; i++)
		ask(o->bytes[i] == byte(m->number, i));
	drop(e->receives, &e->receives_count, o);
	ends_op(o);
}

static inline void completed(struct end *e, struct fi_cq_data_entry *c)
{
	if (c->flags & FI_REMOTE_WRITE) {
		struct end *far = other(e);
		// Writes that ended with the connection tell nothing, and those behind them may.
		while (far->over && far->datas_taken < far->datas_sent && c->data != far->datas[far->datas_taken])
			far->datas_taken++;
		ask(far->datas_taken < far->datas_sent && c->data == far->datas[far->datas_taken++]);
		return;
	}
	struct posted *o = c->op_context;
	ask(o >= e->ops && o < e->ops + OPS && o->pending && !o->cancelled);
	switch (o->what) {
	case RECEIVED:
		ask(c->flags & FI_RECV);
		got(e, o, c->len, 0, c->flags, c->data);
		return;
	case SENT:
		ask((c->flags & FI_SEND) && !o->quiet);
		while (e->sends[0] != o) { // those before it that are quiet have ended, too
			ask(e->sends_count > 1 && e->sends[0]->quiet);
			struct posted *q = e->sends[0];
			drop(e->sends, &e->sends_count, q);
			ends_op(q);
		}
		e->certain = o->number + 1;
		drop(e->sends, &e->sends_count, o);
		break;
	case READ:
		ask((c->flags & FI_READ) && !o->quiet && !o->refused && memcmp(o->bytes, o->want, o->size) == 0);
		break;
	case WRITTEN:
		ask((c->flags & FI_WRITE) && !o->quiet && !o->refused);
		break;
	}
	ends_op(o);
}

static inline void failed(struct end *e)
{
	struct fi_cq_err_entry c = {0};
	ask(fi_cq_readerr(e->side.cq, &c, 0) == 1);
	struct posted *o = c.op_context;
	bool over = e->over || other(e)->over;
	ask(o >= e->ops && o < e->ops + OPS && o->pending);
	switch (o->what) {
	case RECEIVED:
		if (c.err == FI_ETRUNC) {
			got(e, o, c.len, c.olen, c.flags, 0);
			return;
		}
		ask(c.err == FI_ECANCELED ? o->cancelled || over : over);
		if (!o->cancelled)
			drop(e->receives, &e->receives_count, o);
		break;
	case SENT:
		ask(over);
		drop(e->sends, &e->sends_count, o);
		break;
	case READ:
	case WRITTEN:
		ask(o->refused ? c.err == FI_EACCES || over : over);
		break;
	}
	ends_op(o);
}

static inline bool reads(struct end *e)
{
	struct fi_cq_data_entry c[4];
	ssize_t n = fi_cq_read(e->side.cq, c, 1 + any(4));
	if (n == -FI_EAVAIL)
		failed(e);
	else
		ask(n > 0 || n == -FI_EAGAIN);
	for (ssize_t i = 0; i < n; i++)
		completed(e, &c[i]);
	return n != -FI_EAGAIN;
}

static inline void events(struct end *e)
{
	struct fi_eq_cm_entry cm;
	uint32_t event;
	ssize_t n = fi_eq_read(e->side.eq, &event, &cm, sizeof(cm), 0);
	ask(n == -FI_EAGAIN || ((e->over || other(e)->over) && n == sizeof(cm) && event == FI_SHUTDOWN && cm.fid == &e->side.ep->fid));
}

// left counts what is yet to be told.
static inline unsigned left(struct end *e)
{
	unsigned n = 0;
	for (unsigned i = 0; i < OPS; i++)
		n += e->ops[i].pending && (e->ops[i].what == RECEIVED ? e->ops[i].cancelled : !e->ops[i].quiet || e->ops[i].refused);
	return n;
}

// counted returns how many operations a counter has seen end: also those that tell nothing.
static inline uint64_t counted(struct fid_cntr *c) { return fi_cntr_read(c) + fi_cntr_readerr(c); }

// all_end returns whether all operations of an end have ended that are no receives.
static inline bool all_end(struct end *e)
{
	uint64_t n = counted(e->side.cntr);
	ask(n <= e->begun);
	return n == e->begun;
}

// quiet forgets the operations that give no completion, when all have ended.
static inline void quiet(struct end *e)
{
	for (unsigned k = 0; k < OPS; k++) {
		struct posted *o = &e->ops[k];
		if (!o->pending || o->what == RECEIVED)
			continue;
		if (o->what == SENT)
			drop(e->sends, &e->sends_count, o);
		forgets(o);
	}
}

// idle returns whether all has ended that was posted at an end, and all has come.
static inline bool idle(struct end *e)
{
	struct end *far = other(e);
	return left(e) == 0 && all_end(e) && far->taken == far->sent && far->datas_taken == far->datas_sent;
}

// feeds posts the receives that are missing, and takes what there is. It returns whether there was
// something.
static inline bool feeds(struct end *e)
{
	while (other(e)->sent - other(e)->taken > e->receives_count && (!together || left(e) < OPS / 2)) {
		unsigned had = e->receives_count;
		receives_one(e);
		if (e->receives_count == had)
			break;
	}
	bool news = reads(e);
	events(e);
	return news;
}

// closes ends an endpoint, and its operations.
static inline void closes(struct end *e)
{
	e->over = true;
	ask(fi_close(&e->side.ep->fid) == 0);
	e->side.ep = NULL;
	while (reads(e))
		;
	ask(left(e) == 0 && e->receives_count == 0 && all_end(e) && counted(e->side.received) == e->awaited);
}

// cleans ends what a connection has left at an end, which nothing is told of.
static inline void cleans(struct end *e)
{
	struct fi_eq_cm_entry cm;
	uint32_t event;
	for (unsigned k = 0; k < OPS; k++)
		if (e->ops[k].pending) {
			ask(e->ops[k].quiet);
			ends_op(&e->ops[k]);
		}
	ask(fi_eq_read(e->side.eq, &event, &cm, sizeof(cm), 0) == -FI_EAGAIN);
	for (int k = 0; k < REGIONS; k++) {
		if (e->mr[k] != NULL)
			ask(fi_close(&e->mr[k]->fid) == 0);
		e->mr[k] = NULL;
		memset(e->memory[k], 0, REGION);
	}
}

// begins has an end know of nothing.
static inline void begins(struct end *e)
{
	for (int k = 0; k < REGIONS; k++)
		memset(e->shadow[k], 0, REGION);
	memset(e->ops, 0, sizeof(e->ops)); // of one that was killed
	e->sends_count = e->receives_count = 0;
	e->sent = e->taken = e->certain = e->datas_sent = e->datas_taken = 0;
	e->over = false;
}

static inline void *shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(p != MAP_FAILED);
	return p;
}

// opens makes two ends, and what they are checked by.
static inline void opens(void)
{
	ends = shared(2 * sizeof(*ends));
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < REGIONS; k++) {
			must((ends[i].memory[k] = calloc(1, REGION)) != NULL);
			ends[i].shadow[k] = shared(REGION);
		}
	}
}

static inline void frees_memory(void)
{
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < REGIONS; k++)
			free(ends[i].memory[k]);
}

static inline void opens_side(struct end *e)
{
	side_open(&e->side);
	e->side.bound = FI_SELECTIVE_COMPLETION;
	e->begun = e->awaited = 0;
}

static inline void seeds(const char *s)
{
	seed = s;
	state = strtoull(seed, NULL, 10) * 0x9e3779b97f4a7c15ull + 1;
}

// disowns closes, in a child, what its parent had at an end when the child began.
static inline void disowns(struct side *had, struct fid_mr *const *mr)
{
	for (int k = 0; k < REGIONS; k++)
		if (mr[k] != NULL)
			must(fi_close(&mr[k]->fid) == 0);
	side_close(had);
}

// one does one thing that a program may do.
static inline void one(struct end *e)
{
	switch (any(24)) {
	case 0: case 1: case 2: case 3: case 4:
		sends_one(e);
		break;
	case 5: case 6: case 7: case 8: case 9:
		receives_one(e);
		break;
	case 10: case 11: case 12:
		rma_one(e, true);
		break;
	case 13: case 14:
		rma_one(e, false);
		break;
	case 15:
		region(e);
		break;
	case 16:
		cancels(e);
		break;
	case 17:
		events(e);
		break;
	default:
		(void)reads(e);
	}
}

#endif
