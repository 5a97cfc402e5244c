// srx.c: receives that were posted, of an endpoint or shared by several.
#include <stdlib.h>

#include "exnet.h"

void rx_init(struct rx_queue *q, size_t limit)
{
	*q = (struct rx_queue){.limit = limit};
	q->last = &q->first;
}

struct rx *rx_post(struct rx_queue *q, const struct iovec *iov, size_t count, void *context, uint64_t flags)
{
	struct rx *rx = q->free;
	if (q->count >= q->limit)
		return NULL;
	if (rx != NULL)
		q->free = rx->next;
	else if ((rx = malloc(sizeof(*rx))) == NULL)
		return NULL;
	*rx = (struct rx){.count = (unsigned)count, .context = context, .flags = flags};
	for (size_t i = 0; i < count; i++) {
		rx->iov[i] = iov[i];
		rx->size += iov[i].iov_len;
	}
	*q->last = rx;
	q->last = &rx->next;
	q->count++;
	return rx;
}

struct rx *rx_take(struct rx_queue *q)
{
	struct rx *rx = q->first;
	if (rx == NULL)
		return NULL;
	q->first = rx->next;
	if (q->first == NULL)
		q->last = &q->first;
	q->count--;
	return rx;
}

void rx_free(struct rx_queue *q, struct rx *rx)
{
	rx->next = q->free;
	q->free = rx;
}

void rx_clear(struct rx_queue *q)
{
	struct rx *rx;
	while ((rx = rx_take(q)) != NULL)
		free(rx);
	while ((rx = q->free) != NULL) {
		q->free = rx->next;
		free(rx);
	}
}

static ssize_t post(struct fid_ep *fid, const struct iovec *iov, size_t count, void *context, uint64_t flags)
{
	struct srx *s = of(fid, struct srx, fid);
	if (count > IOVS)
		return -FI_EINVAL;
	lock(s->domain->fabric);
	ssize_t r = rx_post(&s->queue, iov, count, context, flags) != NULL ? 0 : -FI_EAGAIN;
	if (r == 0 && !list_empty(&s->domain->active)) // an endpoint may hold a message for it
		cq_wake_all(s->domain);
	unlock(s->domain->fabric);
	return r;
}

static ssize_t srx_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t from, void *context)
{
	(void)desc;
	(void)from;
	return post(fid, &(struct iovec){buf, len}, 1, context, FI_COMPLETION);
}

static ssize_t srx_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t from, void *context)
{
	(void)desc;
	(void)from;
	return post(fid, iov, count, context, FI_COMPLETION);
}

static ssize_t srx_recvmsg(struct fid_ep *fid, const struct fi_msg *msg, uint64_t flags)
{
	return post(fid, msg->msg_iov, msg->iov_count, msg->context, flags);
}

static ssize_t no_send(struct fid_ep *ep, const void *buf, size_t len, void *desc, fi_addr_t to, void *context)
{
	(void)ep, (void)buf, (void)len, (void)desc, (void)to, (void)context;
	return -FI_ENOSYS;
}

static ssize_t no_sendv(struct fid_ep *ep, const struct iovec *iov, void **desc, size_t count, fi_addr_t to, void *context)
{
	(void)ep, (void)iov, (void)desc, (void)count, (void)to, (void)context;
	return -FI_ENOSYS;
}

static ssize_t no_sendmsg(struct fid_ep *ep, const struct fi_msg *msg, uint64_t flags)
{
	(void)ep, (void)msg, (void)flags;
	return -FI_ENOSYS;
}

static ssize_t no_inject(struct fid_ep *ep, const void *buf, size_t len, fi_addr_t to)
{
	(void)ep, (void)buf, (void)len, (void)to;
	return -FI_ENOSYS;
}

static ssize_t no_senddata(struct fid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, void *context)
{
	(void)ep, (void)buf, (void)len, (void)desc, (void)data, (void)to, (void)context;
	return -FI_ENOSYS;
}

static ssize_t no_injectdata(struct fid_ep *ep, const void *buf, size_t len, uint64_t data, fi_addr_t to)
{
	(void)ep, (void)buf, (void)len, (void)data, (void)to;
	return -FI_ENOSYS;
}

static struct fi_ops_msg srx_msg = {
	.size = sizeof(srx_msg), .recv = srx_recv, .recvv = srx_recvv, .recvmsg = srx_recvmsg, .send = no_send, .sendv = no_sendv,
	.sendmsg = no_sendmsg, .inject = no_inject, .senddata = no_senddata, .injectdata = no_injectdata,
};

static int srx_close(struct fid *fid)
{
	struct srx *s = of(fid, struct srx, fid.fid);
	struct fabric *f = s->domain->fabric;
	lock(f);
	if (s->uses > 0) {
		unlock(f);
		return -FI_EBUSY;
	}
	s->domain->uses--;
	rx_clear(&s->queue);
	unlock(f);
	free(s);
	return 0;
}

static int no_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid, (void)other, (void)flags;
	return -FI_ENOSYS;
}

static int srx_control(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)arg;
	return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

static int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
	(void)fid, (void)name, (void)flags, (void)ops, (void)context;
	return -FI_ENOSYS;
}

static struct fi_ops srx_fid = {
	.size = sizeof(srx_fid), .close = srx_close, .bind = no_bind, .control = srx_control, .ops_open = no_ops_open,
};

static ssize_t srx_cancel(fid_t fid, void *context)
{
	(void)fid, (void)context;
	return -FI_ENOENT;
}

static int no_opt(fid_t fid, int level, int name, void *value, size_t *len)
{
	(void)fid, (void)level, (void)name, (void)value, (void)len;
	return -FI_ENOPROTOOPT;
}

static int no_setopt(fid_t fid, int level, int name, const void *value, size_t len)
{
	(void)fid, (void)level, (void)name, (void)value, (void)len;
	return -FI_ENOPROTOOPT;
}

static struct fi_ops_ep srx_ep = {.size = sizeof(srx_ep), .cancel = srx_cancel, .getopt = no_opt, .setopt = no_setopt};

int exfi_srx_open(struct fid_domain *fid, struct fi_rx_attr *attr, struct fid_ep **out, void *context)
{
	struct domain *d = of(fid, struct domain, fid);
	struct srx *s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -FI_ENOMEM;
	s->domain = d;
	s->fid.fid = (struct fid){.fclass = FI_CLASS_SRX_CTX, .context = context, .ops = &srx_fid};
	s->fid.ops = &srx_ep;
	s->fid.msg = &srx_msg;
	rx_init(&s->queue, attr != NULL && attr->size > 0 && attr->size < SIZE_LIMIT ? attr->size : SIZE_LIMIT);
	lock(d->fabric);
	d->uses++;
	unlock(d->fabric);
	*out = &s->fid;
	return 0;
}
