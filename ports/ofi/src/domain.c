// domain.c: fabrics, and domains with their ports.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "exnet.h"

enum { ENDPOINTS = 8192 };

static int no_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid, (void)other, (void)flags;
	return -FI_ENOSYS;
}

static int no_control(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)command, (void)arg;
	return -FI_ENOSYS;
}

static int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
	(void)fid, (void)name, (void)flags, (void)ops, (void)context;
	return -FI_ENOSYS;
}

static int domain_close(struct fid *fid)
{
	struct domain *d = of(fid, struct domain, fid.fid);
	struct list *l;
	lock(d->fabric);
	if (d->uses > 0) {
		unlock(d->fabric);
		return -FI_EBUSY;
	}
	list_remove(&d->link);
	d->fabric->uses--;
	if (!d->fabric->child) {
		velo2_close(&d->velo);
		rma2_close(d->rma);
	}
	place_close(d);
	// They stay registered: a peer that has them mapped may yet read what it was sent.
	while ((l = list_pop(&d->rings)) != NULL) {
		struct ring *r = of(l, struct ring, link);
		munmap(r->mem, r->size);
		free(r);
	}
	unlock(d->fabric);
	free(d->eps);
	free(d->mrs);
	free(d);
	return 0;
}

static int no_av(struct fid_domain *fid, struct fi_av_attr *attr, struct fid_av **out, void *context)
{
	(void)fid, (void)attr, (void)out, (void)context;
	return -FI_ENOSYS; // endpoints are connected
}

static int no_sep(struct fid_domain *fid, struct fi_info *info, struct fid_ep **out, void *context)
{
	(void)fid, (void)info, (void)out, (void)context;
	return -FI_ENOSYS;
}

static int no_poll(struct fid_domain *fid, struct fi_poll_attr *attr, struct fid_poll **out)
{
	(void)fid, (void)attr, (void)out;
	return -FI_ENOSYS;
}

static int no_stx(struct fid_domain *fid, struct fi_tx_attr *attr, struct fid_stx **out, void *context)
{
	(void)fid, (void)attr, (void)out, (void)context;
	return -FI_ENOSYS;
}

static int no_atomic(struct fid_domain *fid, enum fi_datatype type, enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags)
{
	(void)fid, (void)type, (void)op, (void)attr, (void)flags;
	return -FI_EOPNOTSUPP; // ofi_rxm has them in software
}

static struct fi_ops domain_fid = {
	.size = sizeof(domain_fid), .close = domain_close, .bind = no_bind, .control = no_control, .ops_open = no_ops_open,
};

static struct fi_ops_domain domain_ops = {
	.size = sizeof(domain_ops), .av_open = no_av, .cq_open = exfi_cq_open, .endpoint = exfi_endpoint, .scalable_ep = no_sep,
	.cntr_open = exfi_cntr_open, .poll_open = no_poll, .stx_ctx = no_stx, .srx_ctx = exfi_srx_open, .query_atomic = no_atomic,
};

// ports opens the domain's mailbox and RMA port.
static int ports(struct domain *d)
{
	velo2_ret_t r = velo2_open(&d->velo);
	if (r != VELO2_RET_SUCCESS) {
		// The mailbox has one value for both.
		bool full = r == VELO2_RET_ERR_FDOPEN && exfi_node_runs();
		WARN(DOMAIN, full ? "the node has no port left, or none for this user: end a program that has some "
				    "(exn-tun status --ports)\n"
				  : "no node runs in this network namespace: start one (exn-tun up)\n");
		return r == VELO2_RET_ERR_MMAP ? -FI_ENOMEM : full ? -FI_ENOSPC : -FI_ENETDOWN;
	}
	RMA2_ERROR e = rma2_open(&d->rma);
	if (e != RMA2_SUCCESS) {
		char why[128];
		rma2_serror(e, why, sizeof(why));
		WARN(DOMAIN, "the RMA port: %s\n", why);
		velo2_close(&d->velo);
		return e == RMA2_ERR_PORTS_USED ? -FI_ENOSPC : e == RMA2_ERR_NO_DEVICE ? -FI_ENETDOWN : -FI_ENOMEM;
	}
	velo2_descriptors(&d->velo, d->fds);
	d->fds[2] = rma2_bell(d->rma);
	return 0;
}

int exfi_domain(struct fid_fabric *fid, struct fi_info *info, struct fid_domain **out, void *context)
{
	struct fabric *f = of(fid, struct fabric, fid);
	if (info == NULL || info->domain_attr == NULL)
		return -FI_EINVAL;
	struct domain *d = calloc(1, sizeof(*d));
	if (d == NULL || (d->eps = calloc(ENDPOINTS, sizeof(*d->eps))) == NULL) {
		free(d);
		return -FI_ENOMEM;
	}
	int mode = info->domain_attr->mr_mode;
	d->fabric = f;
	d->eps_room = ENDPOINTS;
	d->ring_room = RING_ROOM;
	d->virt = mode == MR_BASIC;
	d->own_keys = mode == MR_BASIC;
	list_init(&d->active);
	list_init(&d->getting);
	list_init(&d->rings);
	list_init(&d->gates);
	list_init(&d->cqs);
	// Numbers of endpoints, so that those of an earlier process mean nothing.
	if (getrandom(&d->next_id, sizeof(d->next_id), GRND_NONBLOCK) != sizeof(d->next_id))
		d->next_id = (uint32_t)(uintptr_t)d;
	d->next_key = 1;
	d->fid.fid = (struct fid){.fclass = FI_CLASS_DOMAIN, .context = context, .ops = &domain_fid};
	d->fid.ops = &domain_ops;
	d->fid.mr = &exfi_mr_ops;
	lock(f);
	int r = ports(d);
	if (r == 0) {
		list_push(&f->domains, &d->link);
		f->uses++;
	}
	unlock(f);
	if (r != 0) {
		free(d->eps);
		free(d);
		return r;
	}
	*out = &d->fid;
	return 0;
}

static int fabric_close(struct fid *fid)
{
	struct fabric *f = of(fid, struct fabric, fid.fid);
	lock(f);
	bool busy = f->uses > 0;
	unlock(f);
	if (busy)
		return -FI_EBUSY;
	exfi_fork_remove(f);
	while (!list_empty(&f->cms)) // requests that the program was told of, and has not answered
		cm_free(of(f->cms.next, struct cm, link));
	pthread_mutex_destroy(&f->lock);
	free(f);
	return 0;
}

static int no_wait(struct fid_fabric *fid, struct fi_wait_attr *attr, struct fid_wait **out)
{
	(void)fid, (void)attr, (void)out;
	return -FI_ENOSYS;
}

static int trywait(struct fid_fabric *fid, struct fid **fids, int count)
{
	struct fabric *f = of(fid, struct fabric, fid);
	int r = 0;
	lock(f);
	for (int i = 0; i < count && r == 0; i++) {
		if (fids[i]->fclass == FI_CLASS_CQ)
			r = cq_trywait(of(fids[i], struct cq, fid.fid)) ? 0 : -FI_EAGAIN;
		else if (fids[i]->fclass == FI_CLASS_EQ)
			r = eq_trywait(of(fids[i], struct eq, fid.fid)) ? 0 : -FI_EAGAIN;
		else
			r = -FI_EINVAL;
	}
	unlock(f);
	return r;
}

static struct fi_ops fabric_fid = {
	.size = sizeof(fabric_fid), .close = fabric_close, .bind = no_bind, .control = no_control, .ops_open = no_ops_open,
};

static struct fi_ops_fabric fabric_ops = {
	.size = sizeof(fabric_ops), .domain = exfi_domain, .passive_ep = exfi_pep, .eq_open = exfi_eq_open, .wait_open = no_wait,
	.trywait = trywait,
};

int exfi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context)
{
	struct fabric *f = calloc(1, sizeof(*f));
	(void)attr;
	if (f == NULL)
		return -FI_ENOMEM;
	pthread_mutex_init(&f->lock, NULL);
	list_init(&f->domains);
	list_init(&f->eqs);
	list_init(&f->cms);
	list_init(&f->peps);
	list_init(&f->link);
	f->fid.fid = (struct fid){.fclass = FI_CLASS_FABRIC, .context = context, .ops = &fabric_fid};
	f->fid.ops = &fabric_ops;
	f->fid.api_version = attr != NULL ? attr->api_version : FI_VERSION(1, 17);
	exfi_fork_add(f);
	*out = &f->fid;
	return 0;
}
