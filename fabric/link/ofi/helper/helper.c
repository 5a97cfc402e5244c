/*
 * helper.c: exn-ofi, which carries the messages of one link by libfabric.
 *
 *	exn-ofi listen|connect ADDRESS [PROVIDER]
 *
 * Started by a node, with these descriptors: 3 a socket for orders and reports, a line
 * each; 4 the ring (ring.h); 5 an eventfd that wakes the helper; 6 one that wakes the node.
 *
 *	helper: info LIBRARY PROVIDER VERSION     version numbers as libfabric has them
 *	node:   go PORT MINE THEIRS               16 bytes each, in hex; the port of a listener is 0
 *	helper: port N                            a listener's
 *	helper: up
 *	helper: down REASON                       then it ends
 *
 * A connection that does not begin with THEIRS is refused. When the socket ends, so does
 * the helper.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ring.h"

enum { FD_CONTROL = 3, FD_RING, FD_WAKE, FD_NODE };
enum { TOKEN = 16, LINE = 256, BATCH = 16, EVENT = 512 };

/* op is what libfabric returns with a completion. */
typedef struct {
	struct fi_context2 context;
	bool send, done;
	unsigned slot;
} op;

typedef struct {
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_pep *pep;
	struct fid_ep *ep;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_mr *mr;
	void *desc;
	int eq_fd, cq_fd;
	bool up, look; /* look: the event queue has something */
	bool full;     /* the provider took no more until something completes */

	unsigned char mine[TOKEN], theirs[TOKEN];
	ring *r;
	uint8_t *tx, *rx;
	op sends[RING_SLOTS], receives[RING_SLOTS];
	uint64_t sent, tx_done, posted, rx_told;
} helper;

/* say sends a line to the node. If that has gone there is nobody to tell. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	char line[LINE];
	va_list args;

	va_start(args, format);
	int n = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (n < 0)
		return;
	if (n > LINE - 2)
		n = LINE - 2;
	line[n++] = '\n';
	ssize_t written = write(FD_CONTROL, line, (size_t)n);
	(void)written;
}

__attribute__((noreturn)) static void down(const char *what, int error)
{
	say("down %s: %s", what, fi_strerror(error < 0 ? -error : error));
	exit(1);
}

static void need(int error, const char *what)
{
	if (error)
		down(what, error);
}

/* ring_bell wakes the node if it has asked for it. */
static bool ring_bell(ring_word *waits)
{
	static const uint64_t one = 1;

	if (atomic_load(&waits->word) == 0 || atomic_exchange(&waits->word, 0) == 0)
		return false;
	ssize_t n = write(FD_NODE, &one, sizeof(one)); /* full: it is awake anyway */
	(void)n;
	return true;
}

/* hears reads a line of the node; false: it has gone. */
static bool hears(char line[LINE])
{
	for (int n = 0; n < LINE - 1; n++) {
		if (read(FD_CONTROL, line + n, 1) != 1)
			return false;
		if (line[n] == '\n') {
			line[n] = 0;
			return true;
		}
	}
	return false;
}

static bool unhex(const char *text, unsigned char token[TOKEN])
{
	for (int i = 0; i < TOKEN; i++) {
		unsigned byte;
		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			return false;
		token[i] = (unsigned char)byte;
	}
	return true;
}

/* same compares without telling by its time how much is the same. */
static bool same(const unsigned char *a, const unsigned char *b)
{
	unsigned char differs = 0;

	for (int i = 0; i < TOKEN; i++)
		differs |= a[i] ^ b[i];
	return differs == 0;
}

/* find returns the provider's description of the way to or from an address. */
static struct fi_info *find(bool listens, const char *address, const char *port, const char *provider)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;

	if (!hints)
		down("memory", ENOMEM);
	hints->ep_attr->type = FI_EP_MSG;
	hints->caps = FI_MSG;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
	if (provider)
		hints->fabric_attr->prov_name = strdup(provider);
	int error = fi_getinfo(FI_VERSION(1, 11), address, port, listens ? FI_SOURCE : 0, hints, &info);
	fi_freeinfo(hints);
	if (error == -FI_ENODATA)
		down("no way by FI_EP_MSG", error);
	need(error, "fi_getinfo");
	return info;
}

static int wait_fd(struct fid *f)
{
	int fd = -1;

	need(fi_control(f, FI_GETWAIT, &fd), "fi_control(FI_GETWAIT)");
	return fd;
}

static void open_fabric(helper *h, struct fi_info *info)
{
	struct fi_eq_attr attr = {.wait_obj = FI_WAIT_FD};

	need(fi_fabric(info->fabric_attr, &h->fabric, NULL), "fi_fabric");
	need(fi_eq_open(h->fabric, &attr, &h->eq, NULL), "fi_eq_open");
	h->eq_fd = wait_fd(&h->eq->fid);
}

/* receive gives the provider those slots that the node has emptied. */
static bool receive(helper *h)
{
	bool did = false;

	for (uint64_t end = atomic_load(&h->r->rx_done.word) + RING_SLOTS; h->posted < end; h->posted++) {
		unsigned slot = h->posted % RING_SLOTS;
		op *o = &h->receives[slot];
		int error = (int)fi_recv(h->ep, h->rx + (size_t)slot * RING_SLOT, RING_SLOT, h->desc, 0, o);
		if ((h->full = error == -FI_EAGAIN))
			break;
		need(error, "fi_recv");
		did = true;
	}
	atomic_store(&h->r->rx_posted.word, h->posted);
	return did;
}

/* transmit gives the provider what the node wants sent. */
static bool transmit(helper *h)
{
	bool did = false;

	for (uint64_t told = atomic_load(&h->r->tx_told.word); h->sent < told; h->sent++) {
		unsigned slot = h->sent % RING_SLOTS;
		uint32_t n = atomic_load_explicit(&h->r->tx_len[slot], memory_order_relaxed);
		if (told - h->tx_done > RING_SLOTS || n == 0 || n > RING_SLOT)
			down("ring", EINVAL);
		op *o = &h->sends[slot];
		int error = (int)fi_send(h->ep, h->tx + (size_t)slot * RING_SLOT, n, h->desc, 0, o);
		if ((h->full = error == -FI_EAGAIN))
			break;
		need(error, "fi_send");
		did = true;
	}
	return did;
}

/* complete takes what has been sent and received, and tells the node in order. */
static bool complete(helper *h)
{
	struct fi_cq_msg_entry got[BATCH];
	ssize_t n = fi_cq_read(h->cq, got, BATCH);

	if (n == -FI_EAGAIN || n == 0)
		return false;
	if (n == -FI_EAVAIL) {
		struct fi_cq_err_entry e = {0};
		if (fi_cq_readerr(h->cq, &e, 0) < 0 || e.err == 0)
			e.err = FI_EOTHER;
		down("the peer's end", e.err);
	}
	if (n < 0)
		down("fi_cq_read", (int)n);
	for (ssize_t i = 0; i < n; i++) {
		op *o = got[i].op_context;
		if (!o)
			continue;
		if (!o->send && (got[i].len == 0 || got[i].len > RING_SLOT))
			down("message's length", EMSGSIZE);
		if (!o->send)
			atomic_store_explicit(&h->r->rx_len[o->slot], (uint32_t)got[i].len, memory_order_relaxed);
		o->done = true;
	}
	h->full = false;
	uint64_t tx = h->tx_done, rx = h->rx_told;
	for (op *o; tx < h->sent && (o = &h->sends[tx % RING_SLOTS])->done; tx++)
		o->done = false;
	for (op *o; rx < h->posted && (o = &h->receives[rx % RING_SLOTS])->done; rx++)
		o->done = false;
	if (tx != h->tx_done) {
		atomic_store(&h->r->tx_done.word, h->tx_done = tx);
		ring_bell(&h->r->tx_waits);
	}
	if (rx != h->rx_told) {
		atomic_store(&h->r->rx_told.word, h->rx_told = rx);
		ring_bell(&h->r->rx_waits);
	}
	return true;
}

static void open_endpoint(helper *h, struct fi_info *info)
{
	struct fi_cq_attr attr = {
		.size = 2 * RING_SLOTS, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD,
	};

	need(fi_domain(h->fabric, info, &h->domain, NULL), "fi_domain");
	need(fi_cq_open(h->domain, &attr, &h->cq, NULL), "fi_cq_open");
	h->cq_fd = wait_fd(&h->cq->fid);
	if (info->domain_attr->mr_mode & FI_MR_LOCAL) {
		need(fi_mr_reg(h->domain, h->tx, RING_SIZE - RING_DATA, FI_SEND | FI_RECV, 0, 0, 0, &h->mr, NULL), "fi_mr_reg");
		h->desc = fi_mr_desc(h->mr);
	}
	need(fi_endpoint(h->domain, info, &h->ep, NULL), "fi_endpoint");
	need(fi_ep_bind(h->ep, &h->eq->fid, 0), "fi_ep_bind");
	need(fi_ep_bind(h->ep, &h->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	need(fi_enable(h->ep), "fi_enable");
	receive(h);
}

/* listen_on opens a port, and tells which one. */
static void listen_on(helper *h, struct fi_info *info)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} at = {0};
	size_t n = sizeof(at);

	need(fi_passive_ep(h->fabric, info, &h->pep, NULL), "fi_passive_ep");
	need(fi_pep_bind(h->pep, &h->eq->fid, 0), "fi_pep_bind");
	need(fi_listen(h->pep), "fi_listen");
	need(fi_getname(&h->pep->fid, &at, &n), "fi_getname");
	if (at.any.sa_family != AF_INET && at.any.sa_family != AF_INET6)
		down("the provider's addresses have no ports", EAFNOSUPPORT);
	say("port %u", ntohs(at.any.sa_family == AF_INET ? at.v4.sin_port : at.v6.sin6_port));
}

/* requested answers a request for a connection. */
static void requested(helper *h, struct fi_eq_cm_entry *e, size_t data)
{
	if (h->ep || data < TOKEN || !same(e->data, h->theirs)) {
		(void)fi_reject(h->pep, e->info->handle, NULL, 0); /* a stranger */
		fi_freeinfo(e->info);
		return;
	}
	open_endpoint(h, e->info);
	need(fi_accept(h->ep, h->mine, TOKEN), "fi_accept");
	fi_freeinfo(e->info);
}

/* happen handles an event of the connection. */
static bool happen(helper *h)
{
	union {
		struct fi_eq_cm_entry entry;
		unsigned char room[sizeof(struct fi_eq_cm_entry) + EVENT];
	} e;
	uint32_t event = 0;
	ssize_t n = fi_eq_read(h->eq, &event, &e, sizeof(e), 0);

	if (n == -FI_EAGAIN || n == 0)
		return false;
	if (n == -FI_EAVAIL) {
		struct fi_eq_err_entry err = {0};
		if (fi_eq_readerr(h->eq, &err, 0) < 0 || err.err == 0)
			err.err = FI_EOTHER;
		if (h->pep && !h->ep)
			return true; /* a stranger that has hung up */
		down("connection", err.err);
	}
	if (n < (ssize_t)sizeof(e.entry))
		down("fi_eq_read", n < 0 ? (int)n : FI_EOTHER);
	size_t data = (size_t)n - sizeof(e.entry);
	switch (event) {
	case FI_CONNREQ:
		requested(h, &e.entry, data);
		break;
	case FI_CONNECTED:
		if (!h->pep && (data < TOKEN || !same(e.entry.data, h->theirs)))
			down("somebody else answers", EACCES);
		if (h->pep) {
			need(fi_close(&h->pep->fid), "fi_close");
			h->pep = NULL;
		}
		h->up = true;
		say("up");
		break;
	case FI_SHUTDOWN:
		down("the peer has hung up", ESHUTDOWN);
	}
	return true;
}

/* idle reports whether the node has left nothing to do that the provider would take. */
static bool idle(helper *h)
{
	return !h->up || h->full ||
	       (atomic_load(&h->r->tx_told.word) == h->sent &&
		atomic_load(&h->r->rx_done.word) + RING_SLOTS - h->posted < RING_SLOTS / 4);
}

/* rest waits until something happens. */
static void rest(helper *h)
{
	struct fid *fids[] = {&h->eq->fid, h->cq ? &h->cq->fid : NULL};
	struct pollfd fds[] = {
		{.fd = FD_CONTROL, .events = POLLIN}, {.fd = FD_WAKE, .events = POLLIN},
		{.fd = h->eq_fd, .events = POLLIN}, {.fd = h->cq ? h->cq_fd : -1, .events = POLLIN},
	};
	uint64_t count;

	atomic_store(&h->r->sleeps.word, 1);
	if (idle(h) && fi_trywait(h->fabric, fids, h->cq ? 2 : 1) == 0 && poll(fds, 4, -1) < 0 && errno != EINTR)
		down("poll", errno);
	atomic_store(&h->r->sleeps.word, 0);
	atomic_fetch_add(&h->r->wakes.word, 1);
	if (fds[0].revents)
		exit(0); /* the node has gone, or has changed its mind */
	if (fds[1].revents && read(FD_WAKE, &count, sizeof(count)) < 0 && errno != EAGAIN)
		down("eventfd", errno);
	h->look = fds[2].revents != 0;
}

static void map_ring(helper *h)
{
	uint8_t *p = mmap(NULL, RING_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, FD_RING, 0);

	if (p == MAP_FAILED)
		down("mmap", errno);
	close(FD_RING);
	h->r = (ring *)p;
	h->tx = p + RING_DATA;
	h->rx = h->tx + RING_SLOTS * RING_SLOT;
	for (unsigned i = 0; i < RING_SLOTS; i++) {
		h->sends[i] = (op){.send = true, .slot = i};
		h->receives[i] = (op){.slot = i};
	}
}

static void confine(void)
{
	static const struct rlimit none;

	(void)setrlimit(RLIMIT_CORE, &none); /* it would have the node's traffic in it */
	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

int main(int argc, char **argv)
{
	static helper h;
	char line[LINE], port[8], mine[2 * TOKEN + 1], theirs[2 * TOKEN + 1];

	if (argc < 3 || argc > 4 || (strcmp(argv[1], "listen") != 0 && strcmp(argv[1], "connect") != 0)) {
		fprintf(stderr, "exn-ofi is started by exn-tun up --link ofi\n");
		return 2;
	}
	confine();
	bool listens = argv[1][0] == 'l';
	const char *provider = argc == 4 ? argv[3] : NULL;
	struct fi_info *info = find(listens, argv[2], listens ? NULL : "1", provider);
	say("info %u %s %u", fi_version(), info->fabric_attr->prov_name, info->fabric_attr->prov_version);
	if (!hears(line))
		return 0;
	if (sscanf(line, "go %7s %32s %32s", port, mine, theirs) != 3 || !unhex(mine, h.mine) || !unhex(theirs, h.theirs))
		down("order", EINVAL);
	map_ring(&h);
	if (listens) {
		open_fabric(&h, info);
		listen_on(&h, info);
	} else {
		struct fi_info *to = find(false, argv[2], port, info->fabric_attr->prov_name);
		open_fabric(&h, to);
		open_endpoint(&h, to);
		need(fi_connect(h.ep, to->dest_addr, h.mine, TOKEN), "fi_connect");
		fi_freeinfo(to);
	}
	fi_freeinfo(info);
	for (;;) {
		bool did = (!h.up || h.look) && happen(&h);
		if (h.ep && complete(&h))
			did = true;
		if (h.up && transmit(&h))
			did = true;
		if (h.up && receive(&h))
			did = true;
		if (!did)
			rest(&h);
	}
}
