// cntr.c: counters of completions.
#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <time.h>

#include "exnet.h"

void cntr_add(struct cntr *c, bool error)
{
	if (error)
		c->errors++;
	else
		c->value++;
}

static uint64_t get(struct fid_cntr *fid, bool errors)
{
	struct cntr *c = of(fid, struct cntr, fid);
	lock(c->domain->fabric);
	progress(c->domain);
	uint64_t v = errors ? c->errors : c->value;
	unlock(c->domain->fabric);
	return v;
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
	return get(fid, false);
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	return get(fid, true);
}

static int change(struct fid_cntr *fid, uint64_t value, bool error, bool set)
{
	struct cntr *c = of(fid, struct cntr, fid);
	lock(c->domain->fabric);
	uint64_t *v = error ? &c->errors : &c->value;
	*v = set ? value : *v + value;
	unlock(c->domain->fabric);
	return 0;
}

static int cntr_add_op(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, value, false, false);
}

static int cntr_set(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, value, false, true);
}

static int cntr_adderr(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, value, true, false);
}

static int cntr_seterr(struct fid_cntr *fid, uint64_t value)
{
	return change(fid, value, true, true);
}

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct cntr *c = of(fid, struct cntr, fid);
	struct domain *d = c->domain;
	int64_t end = timeout < 0 ? INT64_MAX : now_ms() + timeout;
	lock(d->fabric);
	const uint64_t errors = c->errors;
	unlock(d->fabric);
	for (;;) {
		lock(d->fabric);
		progress(d);
		bool done = c->value >= threshold, failed = c->errors != errors, dead = d->dead;
		// Another thread may count for this one, so it looks again after 1 ms at the
		// latest.
		bool armed = !done && !failed && !dead && arm(d);
		struct pollfd fds[2] = {{.fd = d->fds[0], .events = POLLIN}, {.fd = d->fds[1], .events = POLLIN}};
		unlock(d->fabric);
		if (done)
			return 0;
		if (failed || dead)
			return -FI_EAVAIL;
		if (now_ms() >= end)
			return -FI_ETIMEDOUT;
		if (armed)
			(void)poll(fds, 2, 1);
	}
}

static int cntr_close(struct fid *fid)
{
	struct cntr *c = of(fid, struct cntr, fid.fid);
	struct fabric *f = c->domain->fabric;
	lock(f);
	if (c->uses > 0) {
		unlock(f);
		return -FI_EBUSY;
	}
	c->domain->uses--;
	unlock(f);
	free(c);
	return 0;
}

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

static struct fi_ops cntr_fid = {
	.size = sizeof(cntr_fid), .close = cntr_close, .bind = no_bind, .control = no_control, .ops_open = no_ops_open,
};

static struct fi_ops_cntr cntr_ops = {
	.size = sizeof(cntr_ops), .read = cntr_read, .readerr = cntr_readerr, .add = cntr_add_op, .set = cntr_set, .wait = cntr_wait,
	.adderr = cntr_adderr, .seterr = cntr_seterr,
};

int exfi_cntr_open(struct fid_domain *fid, struct fi_cntr_attr *attr, struct fid_cntr **out, void *context)
{
	struct domain *d = of(fid, struct domain, fid);
	if (attr != NULL && (attr->events != FI_CNTR_EVENTS_COMP || attr->wait_obj == FI_WAIT_SET || attr->wait_obj == FI_WAIT_FD))
		return -FI_ENOSYS;
	struct cntr *c = calloc(1, sizeof(*c));
	if (c == NULL)
		return -FI_ENOMEM;
	c->domain = d;
	c->fid.fid = (struct fid){.fclass = FI_CLASS_CNTR, .context = context, .ops = &cntr_fid};
	c->fid.ops = &cntr_ops;
	lock(d->fabric);
	d->uses++;
	unlock(d->fabric);
	*out = &c->fid;
	return 0;
}
