// msg.c: messages: what programs call.
#include <stdlib.h>

#include "exnet.h"

static size_t length(const struct iovec *iov, size_t count)
{
	size_t size = 0;
	for (size_t i = 0; i < count; i++)
		size += iov[i].iov_len;
	return size;
}

// enter locks an endpoint that a program wants to send on, and returns an operation for it.
static ssize_t enter(struct ep *ep, struct tx **out)
{
	lock(ep->domain->fabric);
	ssize_t r = 0;
	if (!sends(ep->state))
		r = ep->state == DOWN || ep->state == DRAINING || ep->state == ENDING ? -FI_ECONNABORTED : -FI_ENOTCONN;
	else if (ep->queued >= ep->limit || (ep->tx_cq != NULL && cq_full(ep->tx_cq)))
		r = -FI_EAGAIN;
	else if ((*out = tx_new(ep)) == NULL)
		r = -FI_ENOMEM;
	if (r == -FI_EAGAIN)
		progress(ep->domain);
	if (r != 0)
		unlock(ep->domain->fabric);
	return r;
}

static ssize_t send_flags(struct fid_ep *fid, const struct iovec *iov, size_t count, void *context, bool has_data, uint64_t data,
			  uint64_t flags)
{
	struct ep *ep = of(fid, struct ep, fid);
	struct tx *tx;
	if (count > IOVS)
		return -FI_EINVAL;
	const size_t size = length(iov, count);
	if ((flags & FI_INJECT) && size > INLINE)
		return -FI_EINVAL;
	ssize_t r = enter(ep, &tx);
	if (r != 0)
		return r;
	tx->kind = K_SEND;
	tx->context = context;
	tx->size = size;
	tx->has_data = has_data;
	tx->data = data;
	tx->quiet = !(flags & FI_COMPLETION);
	tx->deliver = flags & FI_DELIVERY_COMPLETE;
	for (size_t i = 0; i < count; i++)
		tx->iov[tx->count++] = iov[i];
	if (flags & FI_INJECT) {
		uint8_t *to = tx->copy;
		for (size_t i = 0; i < count; to += iov[i++].iov_len)
			if (iov[i].iov_len > 0)
				memcpy(to, iov[i].iov_base, iov[i].iov_len);
		tx->iov[0] = (struct iovec){tx->copy, size};
		tx->count = 1;
	}
	tx_submit(ep, tx);
	unlock(ep->domain->fabric);
	return 0;
}

// usual returns the flags of calls that have none: those of the endpoint. FI_INJECT is of what is
// small enough.
static uint64_t usual(struct fid_ep *fid, const struct iovec *iov, size_t count)
{
	struct ep *ep = of(fid, struct ep, fid);
	uint64_t flags = ep->tx_flags | (ep->tx_selective ? 0 : FI_COMPLETION);
	return length(iov, count) > INLINE ? flags & ~FI_INJECT : flags;
}

static ssize_t msg_send(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t to, void *context)
{
	(void)desc, (void)to;
	const struct iovec iov = {(void *)buf, len};
	return send_flags(fid, &iov, 1, context, false, 0, usual(fid, &iov, 1));
}

static ssize_t msg_sendv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t to, void *context)
{
	(void)desc, (void)to;
	return send_flags(fid, iov, count, context, false, 0, usual(fid, iov, count));
}

static ssize_t msg_sendmsg(struct fid_ep *fid, const struct fi_msg *m, uint64_t flags)
{
	if (!of(fid, struct ep, fid)->tx_selective)
		flags |= FI_COMPLETION;
	return send_flags(fid, m->msg_iov, m->iov_count, m->context, flags & FI_REMOTE_CQ_DATA, m->data, flags);
}

static ssize_t msg_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t to)
{
	(void)to;
	return send_flags(fid, &(struct iovec){(void *)buf, len}, 1, NULL, false, 0, FI_INJECT);
}

static ssize_t msg_senddata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, void *context)
{
	(void)desc, (void)to;
	const struct iovec iov = {(void *)buf, len};
	return send_flags(fid, &iov, 1, context, true, data, usual(fid, &iov, 1));
}

static ssize_t msg_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t to)
{
	(void)to;
	return send_flags(fid, &(struct iovec){(void *)buf, len}, 1, NULL, true, data, FI_INJECT);
}

static ssize_t post(struct fid_ep *fid, const struct iovec *iov, size_t count, void *context, uint64_t flags)
{
	struct ep *ep = of(fid, struct ep, fid);
	if (count > IOVS)
		return -FI_EINVAL;
	lock(ep->domain->fabric);
	ssize_t r = 0;
	if (ep->state == DOWN)
		r = -FI_ECONNABORTED;
	else if (rx_post(&ep->rxq, iov, count, context, flags) == NULL)
		r = -FI_EAGAIN;
	else if (ep->held_count > 0)
		activate(ep);
	unlock(ep->domain->fabric);
	return r;
}

static ssize_t msg_recv(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t from, void *context)
{
	(void)desc, (void)from;
	return post(fid, &(struct iovec){buf, len}, 1, context, of(fid, struct ep, fid)->rx_flags);
}

static ssize_t msg_recvv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t from, void *context)
{
	(void)desc, (void)from;
	return post(fid, iov, count, context, of(fid, struct ep, fid)->rx_flags);
}

static ssize_t msg_recvmsg(struct fid_ep *fid, const struct fi_msg *m, uint64_t flags)
{
	return post(fid, m->msg_iov, m->iov_count, m->context, flags);
}

struct fi_ops_msg exfi_msg_ops = {
	.size = sizeof(exfi_msg_ops), .recv = msg_recv, .recvv = msg_recvv, .recvmsg = msg_recvmsg, .send = msg_send,
	.sendv = msg_sendv, .sendmsg = msg_sendmsg, .inject = msg_inject, .senddata = msg_senddata, .injectdata = msg_injectdata,
};

static ssize_t rma(struct fid_ep *fid, enum kind kind, const struct iovec *iov, size_t count, uint64_t addr, uint64_t key, void *context,
		   bool has_data, uint64_t data, uint64_t flags)
{
	struct ep *ep = of(fid, struct ep, fid);
	struct tx *tx;
	if (count > IOVS)
		return -FI_EINVAL;
	const size_t size = length(iov, count);
	if ((flags & FI_INJECT) && size > INLINE)
		return -FI_EINVAL;
	ssize_t r = enter(ep, &tx);
	if (r != 0)
		return r;
	tx->kind = kind;
	tx->context = context;
	tx->size = size;
	tx->addr = addr;
	tx->key = key;
	tx->has_data = has_data;
	tx->data = data;
	tx->quiet = !(flags & FI_COMPLETION);
	for (size_t i = 0; i < count; i++)
		tx->iov[tx->count++] = iov[i];
	if ((flags & FI_INJECT) && kind == K_WRITE) {
		uint8_t *to = tx->copy;
		for (size_t i = 0; i < count; to += iov[i++].iov_len)
			if (iov[i].iov_len > 0)
				memcpy(to, iov[i].iov_base, iov[i].iov_len);
		tx->iov[0] = (struct iovec){tx->copy, size};
		tx->count = 1;
	}
	tx_submit(ep, tx);
	unlock(ep->domain->fabric);
	return 0;
}

static ssize_t rma_read(struct fid_ep *fid, void *buf, size_t len, void *desc, fi_addr_t from, uint64_t addr, uint64_t key, void *context)
{
	(void)desc, (void)from;
	const struct iovec iov = {buf, len};
	return rma(fid, K_READ, &iov, 1, addr, key, context, false, 0, usual(fid, &iov, 1));
}

static ssize_t rma_readv(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t from, uint64_t addr,
			 uint64_t key, void *context)
{
	(void)desc, (void)from;
	return rma(fid, K_READ, iov, count, addr, key, context, false, 0, usual(fid, iov, count));
}

// msg_ok: an operation is on one range of the peer's memory, as long as the program's.
static bool msg_ok(const struct fi_msg_rma *m)
{
	return m->rma_iov_count == 1 && m->rma_iov[0].len == length(m->msg_iov, m->iov_count);
}

static ssize_t rma_readmsg(struct fid_ep *fid, const struct fi_msg_rma *m, uint64_t flags)
{
	if (!msg_ok(m))
		return -FI_EINVAL;
	if (!of(fid, struct ep, fid)->tx_selective)
		flags |= FI_COMPLETION;
	return rma(fid, K_READ, m->msg_iov, m->iov_count, m->rma_iov[0].addr, m->rma_iov[0].key, m->context, false, 0, flags & ~FI_INJECT);
}

static ssize_t rma_write(struct fid_ep *fid, const void *buf, size_t len, void *desc, fi_addr_t to, uint64_t addr, uint64_t key,
			 void *context)
{
	(void)desc, (void)to;
	const struct iovec iov = {(void *)buf, len};
	return rma(fid, K_WRITE, &iov, 1, addr, key, context, false, 0, usual(fid, &iov, 1));
}

static ssize_t rma_writev(struct fid_ep *fid, const struct iovec *iov, void **desc, size_t count, fi_addr_t to, uint64_t addr,
			  uint64_t key, void *context)
{
	(void)desc, (void)to;
	return rma(fid, K_WRITE, iov, count, addr, key, context, false, 0, usual(fid, iov, count));
}

static ssize_t rma_writemsg(struct fid_ep *fid, const struct fi_msg_rma *m, uint64_t flags)
{
	if (!msg_ok(m))
		return -FI_EINVAL;
	if (!of(fid, struct ep, fid)->tx_selective)
		flags |= FI_COMPLETION;
	return rma(fid, K_WRITE, m->msg_iov, m->iov_count, m->rma_iov[0].addr, m->rma_iov[0].key, m->context, flags & FI_REMOTE_CQ_DATA,
		   m->data, flags);
}

static ssize_t rma_inject(struct fid_ep *fid, const void *buf, size_t len, fi_addr_t to, uint64_t addr, uint64_t key)
{
	(void)to;
	return rma(fid, K_WRITE, &(struct iovec){(void *)buf, len}, 1, addr, key, NULL, false, 0, FI_INJECT);
}

static ssize_t rma_writedata(struct fid_ep *fid, const void *buf, size_t len, void *desc, uint64_t data, fi_addr_t to, uint64_t addr,
			     uint64_t key, void *context)
{
	(void)desc, (void)to;
	const struct iovec iov = {(void *)buf, len};
	return rma(fid, K_WRITE, &iov, 1, addr, key, context, true, data, usual(fid, &iov, 1));
}

static ssize_t rma_injectdata(struct fid_ep *fid, const void *buf, size_t len, uint64_t data, fi_addr_t to, uint64_t addr, uint64_t key)
{
	(void)to;
	return rma(fid, K_WRITE, &(struct iovec){(void *)buf, len}, 1, addr, key, NULL, true, data, FI_INJECT);
}

struct fi_ops_rma exfi_rma_ops = {
	.size = sizeof(exfi_rma_ops), .read = rma_read, .readv = rma_readv, .readmsg = rma_readmsg, .write = rma_write,
	.writev = rma_writev, .writemsg = rma_writemsg, .inject = rma_inject, .writedata = rma_writedata, .injectdata = rma_injectdata,
};
