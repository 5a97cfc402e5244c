// pair.h: two connected endpoints in one process, for tests: the provider's own objects, without
// the rest of libfabric between.
#ifndef PAIR_H
#define PAIR_H

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../src/exnet.h"

#define must(ok)                                                                                                               \
	do {                                                                                                                   \
		if (!(ok)) {                                                                                                   \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #ok);                                       \
			exit(1);                                                                                               \
		}                                                                                                              \
	} while (0)

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_cntr *cntr, *received; // of operations; of receives
	struct fid_ep *ep;
	uint64_t bound; // flags of its completion queue, beside the usual
};

struct fi_provider *fi_prov_ini(void);

static inline struct fi_info *offered(void)
{
	struct fi_info *info;
	must(fi_prov_ini()->getinfo(FI_VERSION(1, 17), NULL, NULL, 0, NULL, &info) == 0);
	return info;
}

// other_node is where the next side opens its ports, if the sides are on two hosts.
static inline bool other_node(void)
{
	const char *at = getenv("EXN_PORTS_B");
	if (at != NULL)
		must(setenv("EXN_PORTS", at, 1) == 0);
	return at != NULL;
}

static inline void side_open(struct side *s)
{
	struct fi_cq_attr cq = {.size = 4096, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
	struct fi_eq_attr eq = {.wait_obj = FI_WAIT_FD};
	memset(s, 0, sizeof(*s));
	s->info = offered();
	must(fi_prov_ini()->fabric(s->info->fabric_attr, &s->fabric, NULL) == 0);
	must(fi_domain(s->fabric, s->info, &s->domain, NULL) == 0);
	must(fi_eq_open(s->fabric, &eq, &s->eq, NULL) == 0);
	must(fi_cq_open(s->domain, &cq, &s->cq, NULL) == 0);
	must(fi_cntr_open(s->domain, &(struct fi_cntr_attr){0}, &s->cntr, NULL) == 0);
	must(fi_cntr_open(s->domain, &(struct fi_cntr_attr){0}, &s->received, NULL) == 0);
}

static inline void side_endpoint(struct side *s, struct fi_info *info)
{
	must(fi_endpoint(s->domain, info, &s->ep, s) == 0);
	must(fi_ep_bind(s->ep, &s->eq->fid, 0) == 0);
	must(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV | s->bound) == 0);
	must(fi_ep_bind(s->ep, &s->cntr->fid, FI_SEND | FI_READ | FI_WRITE) == 0);
	must(fi_ep_bind(s->ep, &s->received->fid, FI_RECV) == 0);
	must(fi_enable(s->ep) == 0);
}

static inline uint32_t side_event(struct side *s, void *entry, size_t room, ssize_t *len)
{
	uint32_t event = 0;
	*len = fi_eq_sread(s->eq, &event, entry, room, 60000, 0);
	return *len < 0 ? 0 : event;
}

static inline struct fid_pep *side_listen(struct side *s, union address *at)
{
	struct fid_pep *pep;
	size_t len = sizeof(*at);
	must(fi_passive_ep(s->fabric, s->info, &pep, NULL) == 0);
	must(fi_pep_bind(pep, &s->eq->fid, 0) == 0);
	must(fi_listen(pep) == 0);
	must(fi_getname(&pep->fid, at, &len) == 0);
	return pep;
}

// pair_connect connects a to b. Their event queues are served in turn, as both are this thread's.
static inline void pair_connect(struct side *a, struct side *b)
{
	union address at;
	struct {
		struct fi_eq_cm_entry cm;
		uint8_t room[CM_DATA];
	} e;
	ssize_t len = 0;
	struct fid_pep *pep = side_listen(b, &at);
	side_endpoint(a, a->info);
	must(fi_connect(a->ep, &at, "hello", 5) == 0);
	uint32_t event;
	while (fi_eq_read(b->eq, &event, &e, sizeof(e), 0) < 0)
		must(fi_eq_read(a->eq, &event, &e, sizeof(e), FI_PEEK) == -FI_EAGAIN);
	must(event == FI_CONNREQ && memcmp(e.cm.data, "hello", 5) == 0);
	side_endpoint(b, e.cm.info);
	fi_freeinfo(e.cm.info);
	must(fi_accept(b->ep, "welcome", 7) == 0);
	must(side_event(a, &e, sizeof(e), &len) == FI_CONNECTED && len == (ssize_t)sizeof(e.cm) + 7 && memcmp(e.cm.data, "welcome", 7) == 0);
	must(side_event(b, &e, sizeof(e), &len) == FI_CONNECTED && e.cm.fid == &b->ep->fid);
	must(fi_close(&pep->fid) == 0);
}

static inline void side_close(struct side *s)
{
	if (s->ep != NULL)
		must(fi_close(&s->ep->fid) == 0);
	must(fi_close(&s->cntr->fid) == 0);
	must(fi_close(&s->received->fid) == 0);
	must(fi_close(&s->cq->fid) == 0);
	must(fi_close(&s->eq->fid) == 0);
	must(fi_close(&s->domain->fid) == 0);
	must(fi_close(&s->fabric->fid) == 0);
	fi_freeinfo(s->info);
}

// turn lets both sides work, and returns the next completion of one of them, or what failed.
static inline ssize_t turn(struct side *mine, struct side *other, struct fi_cq_data_entry *e)
{
	ssize_t n;
	for (long i = 0; i < 1000000000; i++) {
		if ((n = fi_cq_read(mine->cq, e, 1)) != -FI_EAGAIN)
			return n;
		if (other != NULL)
			(void)fi_cq_read(other->cq, NULL, 0);
	}
	return -FI_ETIMEDOUT;
}

static inline int failure(struct side *s)
{
	struct fi_cq_err_entry e = {0};
	must(fi_cq_readerr(s->cq, &e, 0) == 1);
	return e.err;
}

#endif
