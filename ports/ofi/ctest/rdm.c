// rdm.c: endpoints of ofi_rxm over a provider do what MPI does, in any order: tagged messages of
// 0 bytes to 4 MiB, expected and unexpected, from any source or one, with masks, cut short or
// cancelled; and writes and reads. Everything is checked: which message a receive gets, its bytes,
// the order, that each operation ends once. rdm PROVIDER SEED STEPS [whole], as
// rdm 'exnet;ofi_rxm' 1 1000; whole: nothing is cut short, for the control tcp;ofi_rxm, which
// fails by that (libfabric 1.17).
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "seeded.h"

enum {
	ENDS = 3,
	MOST = 4 << 20,
	REGION = 1 << 20, // of each end, for each other one
	OPS = 48,         // of a kind, of an end, at a time
	ALL = 4096,       // messages and receives between two settlements
	SHORT = 4096,     // most bytes of a message of class 0: see receives
	SOURCE_AT = 48,   // a tag: its class, the source, and the number
	CLASS_AT = 56,
	CLASSES = 3,
	PATIENCE = 120, // seconds without a completion
};

static const uint64_t NUMBERS = ((uint64_t)1 << SOURCE_AT) - 1, SOURCES = (uint64_t)0xff << SOURCE_AT, CLASS = (uint64_t)0xff << CLASS_AT;

static bool whole;
static long counts[4];

enum what { SEND, RECEIVE, WRITE, READ };

struct op {
	struct fi_context2 context; // first, as libfabric wants it
	enum what what;
	bool pending, cancelled;
	int end, far; // far: of a receive, the one source, or -1
	size_t size;
	uint64_t tag, ignore, order, got; // order: among the receives; got: the tag that came
	bool full;                        // of a receive: a message has come
	uint8_t *bytes, *want;
};

struct message {
	uint64_t tag;
	size_t size;
	bool received;
};

static struct end {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr;
	fi_addr_t addr[ENDS];
	struct op ops[4][ALL];
	unsigned used[4], pending[4];
	struct message sent[ENDS][ALL]; // to each
	uint64_t sent_count[ENDS], missing;
	uint8_t *memory, *shadow; // ENDS regions
	uint64_t key, base;
	bool busy[ENDS]; // with a write or read there
} ends[ENDS];

static time_t news;

static uint8_t byte(uint64_t tag, size_t i) { return (uint8_t)(tag * 131 + (tag >> 44) + i * 7 + (i >> 8) * 3 + (i >> 17)); }

static size_t some_size(size_t most)
{
	static const size_t around[] = {0, 1, 8, 64, 112, 1024, 4096, 8192, 16384, 65536, 131072, 262144, 1 << 20, MOST};
	size_t kinds = sizeof(around) / sizeof(*around), at = around[any(any(3) == 0 ? kinds : kinds - 4)], n = at + any(3) - (at > 0);
	if (any(4) == 0)
		n = any(at + 1);
	return n < most ? n : most;
}

static struct fi_info *chosen(const char *provider)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_SOURCE | FI_DIRECTED_RECV;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup(provider);
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
	int r = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info);
	if (r != 0) {
		fprintf(stderr, "%s: %s\n", provider, fi_strerror(-r));
		exit(1);
	}
	fi_freeinfo(hints);
	return info;
}

static void opens(struct end *e, const char *provider)
{
	struct fi_cq_attr cq = {.size = 4096, .format = FI_CQ_FORMAT_TAGGED};
	struct fi_av_attr av = {.type = FI_AV_TABLE};
	e->info = chosen(provider);
	ask(fi_fabric(e->info->fabric_attr, &e->fabric, NULL) == 0);
	ask(fi_domain(e->fabric, e->info, &e->domain, NULL) == 0);
	ask(fi_av_open(e->domain, &av, &e->av, NULL) == 0);
	ask(fi_cq_open(e->domain, &cq, &e->cq, NULL) == 0);
	ask(fi_endpoint(e->domain, e->info, &e->ep, NULL) == 0);
	ask(fi_ep_bind(e->ep, &e->av->fid, 0) == 0);
	ask(fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	ask(fi_enable(e->ep) == 0);
	e->memory = calloc(ENDS, REGION);
	e->shadow = calloc(ENDS, REGION);
	ask(fi_mr_reg(e->domain, e->memory, (size_t)ENDS * REGION, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 7, 0, &e->mr, NULL) == 0);
	e->key = fi_mr_key(e->mr);
	e->base = e->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)e->memory : 0;
}

static void meet(void)
{
	for (int i = 0; i < ENDS; i++)
		for (int k = 0; k < ENDS; k++) {
			uint8_t name[256];
			size_t len = sizeof(name);
			ask(fi_getname(&ends[k].ep->fid, name, &len) == 0);
			ask(fi_av_insert(ends[i].av, name, 1, &ends[i].addr[k], 0, NULL) == 1);
		}
}

static struct op *room(struct end *e, enum what what)
{
	if (e->used[what] == ALL || e->pending[what] >= OPS)
		return NULL;
	struct op *o = &e->ops[what][e->used[what]];
	*o = (struct op){.what = what, .pending = true, .end = (int)(e - ends)};
	return o;
}

static void begun(struct end *e, struct op *o)
{
	e->used[o->what]++;
	e->pending[o->what]++;
	counts[o->what]++;
}

static void ended(struct op *o)
{
	ask(o->pending);
	o->pending = false;
	ends[o->end].pending[o->what]--;
	free(o->bytes);
	free(o->want);
	o->bytes = o->want = NULL;
	news = time(NULL);
}

static int another(int i) { return (i + 1 + (int)any(ENDS - 1)) % ENDS; }

static void sends(struct end *e)
{
	const int me = (int)(e - ends), to = another(me);
	struct op *o = room(e, SEND);
	if (o == NULL || e->sent_count[to] == ALL)
		return;
	o->far = to;
	o->tag = any(CLASSES) << CLASS_AT | (uint64_t)me << SOURCE_AT | e->sent_count[to];
	o->size = some_size(o->tag >> CLASS_AT == 0 ? SHORT : MOST);
	o->bytes = malloc(o->size + 1);
	for (size_t i = 0; i < o->size; i++)
		o->bytes[i] = byte(o->tag, i);
	ssize_t r = fi_tsend(e->ep, o->bytes, o->size, NULL, e->addr[to], o->tag, o);
	ask(r == 0 || r == -FI_EAGAIN);
	if (r != 0) {
		free(o->bytes);
		return;
	}
	begun(e, o);
	e->sent[to][e->sent_count[to]++] = (struct message){.tag = o->tag, .size = o->size};
	ends[to].missing++;
}

static void receives(struct end *e, bool all)
{
	struct op *o = room(e, RECEIVE);
	if (o == NULL)
		return;
	o->far = all || any(3) > 0 ? -1 : another((int)(e - ends));
	o->ignore = NUMBERS | (o->far < 0 || any(2) ? SOURCES : 0) | (all || any(3) == 0 ? CLASS : 0);
	o->tag = any(CLASSES) << CLASS_AT | (uint64_t)(o->far < 0 ? 0 : o->far) << SOURCE_AT;
	// ofi_rxm 1.17 damages memory where a message that is read is cut short, also over tcp.
	const bool cut = !whole && !(o->ignore & CLASS) && o->tag >> CLASS_AT == 0 && any(3) == 0;
	o->size = cut ? some_size(SHORT) : MOST + 1;
	o->bytes = malloc(o->size + 1);
	o->order = e->used[RECEIVE];
	ssize_t r = fi_trecv(e->ep, o->bytes, o->size, NULL, o->far < 0 ? FI_ADDR_UNSPEC : e->addr[o->far], o->tag, o->ignore, o);
	ask(r == 0 || r == -FI_EAGAIN);
	if (r != 0)
		free(o->bytes);
	else
		begun(e, o);
}

static void rma(struct end *e, enum what what)
{
	const int me = (int)(e - ends), to = another(me);
	struct op *o = e->busy[to] ? NULL : room(e, what);
	if (o == NULL)
		return;
	struct end *far = &ends[to];
	o->far = to;
	o->size = some_size(REGION - 1) + 1;
	size_t off = (size_t)me * REGION + any(REGION - o->size + 1);
	o->bytes = malloc(o->size + 1);
	o->tag = any(1ull << 40);
	for (size_t i = 0; i < o->size; i++)
		o->bytes[i] = what == WRITE ? byte(o->tag, i) : 0;
	if (what == READ)
		memcpy(o->want = malloc(o->size), far->shadow + off, o->size);
	ssize_t r = what == WRITE ? fi_write(e->ep, o->bytes, o->size, NULL, e->addr[to], far->base + off, far->key, o)
				  : fi_read(e->ep, o->bytes, o->size, NULL, e->addr[to], far->base + off, far->key, o);
	ask(r == 0 || r == -FI_EAGAIN);
	if (r != 0) {
		free(o->bytes);
		free(o->want);
		return;
	}
	begun(e, o);
	e->busy[to] = true;
	if (what == WRITE)
		memcpy(far->shadow + off, o->bytes, o->size);
}

static bool fits(const struct op *o, uint64_t tag)
{
	int source = (int)((tag & SOURCES) >> SOURCE_AT);
	return ((o->tag ^ tag) & ~o->ignore) == 0 && (o->far < 0 || o->far == source);
}

// got works off a receive. Of one that was cut short the tag may not be told: known is false then.
static void got(struct end *e, struct op *o, uint64_t tag, size_t len, size_t lost, fi_addr_t from)
{
	const int source = (int)((tag & SOURCES) >> SOURCE_AT);
	ask(source < ENDS && source != o->end && fits(o, tag));
	struct end *far = &ends[source];
	ask((tag & NUMBERS) < far->sent_count[o->end]);
	struct message *m = &far->sent[o->end][tag & NUMBERS];
	ask(m->tag == tag && !m->received && len + lost == m->size && (lost > 0) == (m->size > o->size));
	ask(from == FI_ADDR_NOTAVAIL || from == e->addr[source]);
	for (size_t i = 0; i < len; i++)
		ask(o->bytes[i] == byte(tag, i));
	m->received = true;
	e->missing--;
	o->full = true;
	o->got = tag;
	ended(o);
}

static bool takes(struct end *e)
{
	struct fi_cq_tagged_entry c;
	fi_addr_t from = FI_ADDR_NOTAVAIL;
	ssize_t n = fi_cq_readfrom(e->cq, &c, 1, &from);
	if (n == -FI_EAGAIN)
		return false;
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry err = {0};
		ask(fi_cq_readerr(e->cq, &err, 0) == 1);
		struct op *o = err.op_context;
		ask(o->pending && o->what == RECEIVE);
		if (err.err == FI_ECANCELED) {
			ask(o->cancelled);
			ended(o);
		} else {
			ask(err.err == FI_ETRUNC || err.err == FI_EMSGSIZE);
			size_t len = o->size; // what of it is told differs
			got(e, o, err.tag, len, ends[(err.tag & SOURCES) >> SOURCE_AT].sent[o->end][err.tag & NUMBERS].size - len, FI_ADDR_NOTAVAIL);
		}
		return true;
	}
	ask(n == 1);
	struct op *o = c.op_context;
	ask(o->pending && !(o->cancelled && o->what != RECEIVE));
	switch (o->what) {
	case RECEIVE:
		ask(c.flags & FI_RECV);
		got(e, o, c.tag, c.len, 0, from);
		return true;
	case READ:
		ask(memcmp(o->bytes, o->want, o->size) == 0);
		// fall through
	case WRITE:
		e->busy[o->far] = false;
		// fall through
	case SEND:
		ended(o);
	}
	return true;
}

static void cancels(struct end *e)
{
	if (e->used[RECEIVE] == 0)
		return;
	struct op *o = &e->ops[RECEIVE][any(e->used[RECEIVE])];
	if (!o->pending || o->cancelled)
		return;
	o->cancelled = true; // it ends by that, or with a message
	(void)fi_cancel(&e->ep->fid, o);
}

// orders looks whether messages of one source overtook each other.
static void orders(const struct end *e)
{
	for (unsigned i = 0; i < e->used[RECEIVE]; i++)
		for (unsigned k = i + 1; k < e->used[RECEIVE]; k++) {
			const struct op *a = &e->ops[RECEIVE][i], *b = &e->ops[RECEIVE][k];
			bool one = a->full && b->full && ((a->got ^ b->got) & SOURCES) == 0;
			ask(!one || (b->got & NUMBERS) > (a->got & NUMBERS) || !fits(a, b->got));
		}
}

static bool all_idle(void)
{
	for (int i = 0; i < ENDS; i++)
		for (int w = 0; w < 4; w++)
			if (ends[i].pending[w] > 0 || ends[i].missing > 0)
				return false;
	return true;
}

// settles has all come that was sent, and reads the memory that was written.
static void settles(void)
{
	bool reads[ENDS][ENDS] = {0};
	for (int i = 0; i < ENDS; i++)
		for (unsigned k = 0; k < ends[i].used[RECEIVE]; k++) {
			struct op *o = &ends[i].ops[RECEIVE][k];
			if (o->pending && !o->cancelled) {
				o->cancelled = true;
				(void)fi_cancel(&ends[i].ep->fid, o);
			}
		}
	news = time(NULL);
	for (bool done = false; !done;) {
		done = all_idle();
		for (int i = 0; i < ENDS; i++) {
			struct end *e = &ends[i];
			while (e->pending[RECEIVE] < e->missing && e->pending[RECEIVE] < OPS && e->used[RECEIVE] < ALL) {
				unsigned had = e->used[RECEIVE];
				receives(e, true);
				if (e->used[RECEIVE] == had)
					break;
			}
			while (takes(e))
				;
			for (int to = 0; to < ENDS; to++) {
				if (to == i || e->busy[to] || reads[i][to])
					continue;
				struct op *o = room(e, READ);
				if (o == NULL)
					continue;
				o->far = to;
				o->size = REGION;
				o->bytes = malloc(REGION);
				memcpy(o->want = malloc(REGION), ends[to].shadow + (size_t)i * REGION, REGION);
				ssize_t r = fi_read(e->ep, o->bytes, REGION, NULL, e->addr[to], ends[to].base + (size_t)i * REGION, ends[to].key, o);
				ask(r == 0 || r == -FI_EAGAIN);
				if (r == 0) {
					begun(e, o);
					reads[i][to] = e->busy[to] = true;
				} else {
					free(o->bytes);
					free(o->want);
				}
				done = false;
			}
		}
		ask(time(NULL) - news < PATIENCE);
	}
	for (int i = 0; i < ENDS; i++) {
		struct end *e = &ends[i];
		ask(memcmp(e->memory, e->shadow, (size_t)ENDS * REGION) == 0);
		orders(e);
		memset(e->used, 0, sizeof(e->used));
		memset(e->sent_count, 0, sizeof(e->sent_count));
	}
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	whole = argc > 4;
	seed = argv[2];
	state = strtoull(seed, NULL, 10) * 0x9e3779b97f4a7c15ull + 1;
	for (int i = 0; i < ENDS; i++) {
		const char *at = i == ENDS - 1 ? getenv("EXN_PORTS_B") : NULL;
		if (at != NULL)
			ask(setenv("EXN_PORTS", at, 1) == 0);
		opens(&ends[i], argv[1]);
	}
	meet();
	for (step = 0; step < atol(argv[3]); step++) {
		struct end *e = &ends[any(ENDS)];
		switch (any(24)) {
		case 0: case 1: case 2: case 3:
			sends(e);
			break;
		case 4: case 5: case 6: case 7:
			receives(e, false);
			break;
		case 8: case 9:
			rma(e, WRITE);
			break;
		case 10:
			rma(e, READ);
			break;
		case 11:
			cancels(e);
			break;
		default:
			(void)takes(e);
		}
		if (any(600) == 0)
			settles();
	}
	settles();
	for (int i = 0; i < ENDS; i++) {
		struct end *e = &ends[i];
		ask(fi_close(&e->ep->fid) == 0);
		ask(fi_close(&e->mr->fid) == 0);
		ask(fi_close(&e->cq->fid) == 0);
		ask(fi_close(&e->av->fid) == 0);
		ask(fi_close(&e->domain->fid) == 0);
		ask(fi_close(&e->fabric->fid) == 0);
		fi_freeinfo(e->info);
		free(e->memory);
		free(e->shadow);
	}
	fprintf(stderr, "%ld sends, %ld receives, %ld writes, %ld reads\n", counts[SEND], counts[RECEIVE], counts[WRITE], counts[READ]);
	puts("done");
	return 0;
}
