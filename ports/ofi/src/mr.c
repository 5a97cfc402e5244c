// mr.c: memory that peers may read or write, by its key.
#include <stdlib.h>

#include "exnet.h"

static size_t slot(const struct domain *d, uint64_t key)
{
	return (key * 0x9e3779b97f4a7c15ull >> 20) & (d->mr_room - 1);
}

static struct mr *by_key(const struct domain *d, uint64_t key)
{
	if (d->mr_count == 0)
		return NULL;
	for (size_t i = slot(d, key); d->mrs[i] != NULL; i = (i + 1) & (d->mr_room - 1))
		if (d->mrs[i]->fid.key == key)
			return d->mrs[i];
	return NULL;
}

static bool grow(struct domain *d)
{
	size_t had = d->mr_room, room = had ? 2 * had : 64;
	struct mr **old = d->mrs, **now = calloc(room, sizeof(*now));
	if (now == NULL)
		return false;
	d->mrs = now;
	d->mr_room = room;
	for (size_t i = 0; i < had; i++)
		if (old[i] != NULL) {
			size_t at = slot(d, old[i]->fid.key);
			while (now[at] != NULL)
				at = (at + 1) & (room - 1);
			now[at] = old[i];
		}
	free(old);
	return true;
}

static void drop(struct domain *d, const struct mr *mr)
{
	size_t mask = d->mr_room - 1, hole = slot(d, mr->fid.key);
	while (d->mrs[hole] != mr)
		hole = (hole + 1) & mask;
	d->mr_count--;
	for (size_t i = (hole + 1) & mask; d->mrs[i] != NULL; i = (i + 1) & mask) {
		size_t home = slot(d, d->mrs[i]->fid.key);
		if (((i - home) & mask) >= ((i - hole) & mask)) {
			d->mrs[hole] = d->mrs[i];
			hole = i;
		}
	}
	d->mrs[hole] = NULL;
}

struct mr *mr_find(struct domain *d, uint64_t key, uint64_t addr, uint64_t size, uint64_t access, uint8_t **at)
{
	struct mr *mr = by_key(d, key);
	if (mr == NULL || !(mr->access & access))
		return NULL;
	uint64_t off = addr - mr->base;
	if (addr < mr->base || off > mr->size || size > mr->size - off)
		return NULL;
	*at = mr->at + off;
	return mr;
}

// promised returns whether a peer reads the memory in this program, as far as this end knows.
static bool promised(const struct ep *ep, const struct mr *mr)
{
	if (ep->current != NULL && ep->current->mr == mr)
		return true;
	for (const struct list *l = ep->shown.next; l != &ep->shown; l = l->next)
		if (((const struct tx *)l)->mr == mr)
			return true;
	return false;
}

// withdraw ends what peers do with the memory at this moment.
static void withdraw(struct domain *d, const struct mr *mr)
{
	for (uint32_t i = 0; i < d->eps_room; i++) {
		struct ep *ep = d->eps[i];
		if (ep == NULL)
			continue;
		if (ep->in.active && ep->in.mr == mr) {
			ep->in.discard = true;
			ep->in.mr = NULL;
			ep->in.error = FI_EACCES;
		}
		for (struct list *l = ep->replies.next, *next; l != &ep->replies; l = next) {
			struct tx *tx = (struct tx *)l;
			next = l->next;
			if (tx->mr == mr) {
				list_remove(l);
				(void)out_owe(ep, tx->cookie, FI_EACCES);
				tx_complete(ep, tx, FI_EACCES);
			}
		}
		if (promised(ep, mr)) // it may have said by now that it has all
			progress(d);
		if (promised(ep, mr)) // it cannot be told otherwise
			(void)ep_on(ep, ON_BROKEN, FI_ECONNABORTED);
	}
}

static int mr_close(struct fid *fid)
{
	struct mr *mr = of(fid, struct mr, fid.fid);
	struct domain *d = mr->domain;
	lock(d->fabric);
	if (!place_revoke(d, mr)) {
		unlock(d->fabric);
		WARN(MR, "a peer does not end its write to a region: it stays registered; close it again\n");
		return -FI_EBUSY;
	}
	drop(d, mr);
	withdraw(d, mr);
	if (mr->cntr != NULL)
		mr->cntr->uses--;
	d->uses--;
	unlock(d->fabric);
	free(mr);
	return 0;
}

// mr_bind binds a counter of what peers write (FI_RMA_EVENT).
static int mr_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct mr *mr = of(fid, struct mr, fid.fid);
	struct cntr *c = of(other, struct cntr, fid.fid);
	if (other->fclass != FI_CLASS_CNTR || flags != FI_REMOTE_WRITE || c->domain != mr->domain || mr->cntr != NULL)
		return -FI_EINVAL;
	lock(mr->domain->fabric);
	(void)place_revoke(mr->domain, mr); // so that peers tell of their writes from now on
	mr->cntr = c;
	c->uses++;
	unlock(mr->domain->fabric);
	return 0;
}

static int mr_control(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)arg;
	return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

static int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
	(void)fid, (void)name, (void)flags, (void)ops, (void)context;
	return -FI_ENOSYS;
}

static struct fi_ops mr_fid = {.size = sizeof(mr_fid), .close = mr_close, .bind = mr_bind, .control = mr_control, .ops_open = no_ops_open};

static int regattr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags, struct fid_mr **out)
{
	struct domain *d = of(fid, struct domain, fid.fid);
	if (fid->fclass != FI_CLASS_DOMAIN || attr == NULL || attr->iov_count != 1 || attr->mr_iov == NULL)
		return -FI_EINVAL;
	if (flags & ~FI_RMA_EVENT)
		return -FI_EBADFLAGS;
	struct mr *mr = calloc(1, sizeof(*mr));
	if (mr == NULL)
		return -FI_ENOMEM;
	mr->domain = d;
	mr->at = attr->mr_iov[0].iov_base;
	mr->size = attr->mr_iov[0].iov_len;
	mr->access = attr->access;
	mr->fid.fid = (struct fid){.fclass = FI_CLASS_MR, .context = attr->context, .ops = &mr_fid};
	mr->fid.mem_desc = mr;
	lock(d->fabric);
	mr->base = d->virt ? (uint64_t)(uintptr_t)mr->at : attr->offset;
	mr->fid.key = d->own_keys ? d->next_key++ : attr->requested_key;
	int r = 0;
	if (by_key(d, mr->fid.key) != NULL)
		r = -FI_ENOKEY;
	else if (2 * (d->mr_count + 1) > d->mr_room && !grow(d))
		r = -FI_ENOMEM;
	if (r != 0) {
		unlock(d->fabric);
		free(mr);
		return r;
	}
	size_t at = slot(d, mr->fid.key);
	while (d->mrs[at] != NULL)
		at = (at + 1) & (d->mr_room - 1);
	d->mrs[at] = mr;
	d->mr_count++;
	d->uses++;
	unlock(d->fabric);
	*out = &mr->fid;
	return 0;
}

static int regv(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access, uint64_t offset, uint64_t key, uint64_t flags,
		struct fid_mr **out, void *context)
{
	struct fi_mr_attr attr = {.mr_iov = iov, .iov_count = count, .access = access, .offset = offset, .requested_key = key, .context = context};
	return regattr(fid, &attr, flags, out);
}

static int reg(struct fid *fid, const void *buf, size_t len, uint64_t access, uint64_t offset, uint64_t key, uint64_t flags,
	       struct fid_mr **out, void *context)
{
	return regv(fid, &(struct iovec){(void *)buf, len}, 1, access, offset, key, flags, out, context);
}

struct fi_ops_mr exfi_mr_ops = {.size = sizeof(exfi_mr_ops), .reg = reg, .regv = regv, .regattr = regattr};
