// limits.c: what programs are told when something is used up, or gone. limits full N|node|rings
#include "pair.h"

// full opens domains until the node has no port left: after as many as it has to have.
static void full(int most)
{
	enum { MOST = 256 };
	static struct fid_domain *all[MOST];
	struct fi_info *info = offered();
	struct fid_fabric *fabric;
	int n = 0, r = 0;
	must(fi_prov_ini()->fabric(info->fabric_attr, &fabric, NULL) == 0);
	while (n < MOST && (r = fi_domain(fabric, info, &all[n], NULL)) == 0)
		n++;
	must(n == most && r == -FI_ENOSPC);
	must(fi_close(&all[--n]->fid) == 0);
	// The node takes a moment to hear of it.
	for (int i = 0; (r = fi_domain(fabric, info, &all[n], NULL)) != 0; i++) {
		must(r == -FI_ENOSPC && i < 60000);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	for (int i = 0; i <= n; i++)
		must(fi_close(&all[i]->fid) == 0);
	must(fi_close(&fabric->fid) == 0);
	fi_freeinfo(info);
}

// node waits for the end of the node: everything ends with an error, and nothing waits.
static void node(void)
{
	struct side a, b;
	struct fi_cq_data_entry e;
	struct fi_eq_cm_entry cm;
	static uint8_t into[100];
	ssize_t len;
	side_open(&a);
	side_open(&b);
	pair_connect(&a, &b);
	must(fi_recv(a.ep, into, sizeof(into), NULL, 0, into) == 0);
	puts("connected");
	fflush(stdout);
	must(fi_cq_sread(a.cq, &e, 1, NULL, 60000) == -FI_EAVAIL);
	must(failure(&a) == FI_ECONNABORTED);
	must(side_event(&a, &cm, sizeof(cm), &len) == FI_SHUTDOWN && cm.fid == &a.ep->fid);
	must(fi_send(a.ep, into, 8, NULL, 0, NULL) == -FI_ECONNABORTED);
	must(fi_recv(a.ep, into, 8, NULL, 0, NULL) == -FI_ECONNABORTED);
	must(fi_cq_sread(a.cq, &e, 1, NULL, 60000) == -FI_ENETDOWN);
	side_close(&a);
	side_close(&b);
}

// rings opens more rings than a domain has room for.
static void rings(void)
{
	enum { EPS = 40, FIT = 8 };
	struct fid_ep *all[EPS];
	struct side s;
	side_open(&s);
	struct domain *d = of(s.domain, struct domain, fid);
	d->ring_room = FIT * 2 * RING_LEAST;
	for (int i = 0; i < EPS; i++)
		must(fi_endpoint(s.domain, s.info, &all[i], NULL) == 0);
	lock(d->fabric);
	// Nothing is in them, so each gets what another one had.
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < EPS; i++) {
			struct ep *ep = of(all[i], struct ep, fid);
			for (struct ring *r = &ep->ring; r != NULL; r = r == &ep->ring ? &ep->landing : NULL) {
				uint64_t head = r->head;
				must(r->mem != NULL || ring_open(d, r, 4 << 20));
				must(r->size >= RING_LEAST && r->head == head && r->tail == head);
				// The largest chunk fits wherever the last one has ended.
				must(ring_take(r, 100000) != NULL);
				r->tail = r->head;
				must(ring_take(r, FAR_CHUNK) != NULL);
				r->tail = r->head;
			}
		}
	// They are full: no more can be had, and nobody loses his.
	int full = 0;
	for (int i = 0; i < EPS; i++) {
		struct ep *ep = of(all[i], struct ep, fid);
		if ((ep->ring.mem == NULL && !ring_open(d, &ep->ring, 4 << 20)) || ring_take(&ep->ring, 1) == NULL)
			continue;
		full++;
	}
	must(full == 2 * FIT);
	for (int i = 0; i < EPS; i++) {
		struct ep *ep = of(all[i], struct ep, fid);
		must(ep->landing.mem == NULL && (ep->ring.mem != NULL) == (ep->ring.head != ep->ring.tail));
		ep->ring.tail = ep->ring.head;
	}
	must(ring_open(d, &of(all[0], struct ep, fid)->landing, 4 << 20));
	unlock(d->fabric);
	for (int i = 0; i < EPS; i++)
		must(fi_close(&all[i]->fid) == 0);
	must(d->ring_room == FIT * 2 * RING_LEAST);
	side_close(&s);
}

int main(int argc, char **argv)
{
	must(argc >= 2);
	if (argc == 3 && strcmp(argv[1], "full") == 0)
		full(atoi(argv[2]));
	else if (strcmp(argv[1], "rings") == 0)
		rings();
	else
		node();
	puts("done");
	return 0;
}
