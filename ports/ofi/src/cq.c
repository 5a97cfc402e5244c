// cq.c: completion queues. Who reads one drives the data path of its domain: there is no thread.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "exnet.h"

// How many reads in a row find nothing before the CPU is given to others: the peer may be one of
// them.
enum { EMPTY_PER_YIELD = 64 };

struct failed {
	struct list link;
	uint64_t before; // completions that were told before it
	struct fi_cq_err_entry entry;
};

bool cq_full(const struct cq *cq)
{
	return cq->count >= cq->limit;
}

static void wake(struct cq *cq)
{
	if (!cq->asleep)
		return;
	cq->asleep = false;
	(void)!write(cq->event_fd, &(uint64_t){1}, 8);
}

void cq_wake_all(struct domain *d)
{
	for (struct list *l = d->cqs.next; l != &d->cqs; l = l->next)
		wake(of(l, struct cq, link));
}

static bool grow(struct cq *cq)
{
	struct fi_cq_tagged_entry *now = malloc(2 * cq->room * sizeof(*now));
	if (now == NULL)
		return false;
	for (size_t i = 0; i < cq->count; i++)
		now[i] = cq->ring[(cq->first + i) & (cq->room - 1)];
	free(cq->ring);
	cq->ring = now;
	cq->room *= 2;
	cq->first = 0;
	return true;
}

void cq_add(struct cq *cq, void *context, uint64_t flags, size_t len, void *buf, uint64_t data)
{
	if (cq->count == cq->room && !grow(cq)) {
		WARN(CQ, "no memory: a completion is lost\n");
		return;
	}
	cq->ring[(cq->first + cq->count++) & (cq->room - 1)] = (struct fi_cq_tagged_entry){context, flags, len, buf, data, 0};
	wake(cq);
}

void cq_error(struct cq *cq, void *context, uint64_t flags, int error, size_t len, size_t lost)
{
	struct failed *f = calloc(1, sizeof(*f));
	if (f == NULL) {
		WARN(CQ, "no memory: a completion is lost\n");
		return;
	}
	f->entry = (struct fi_cq_err_entry){.op_context = context, .flags = flags, .len = len, .olen = lost, .err = error, .prov_errno = error};
	f->before = cq->taken + cq->count;
	list_push(&cq->errors, &f->link);
	wake(cq);
}

static ssize_t take(struct cq *cq, void *buf, size_t count)
{
	static const size_t sizes[] = {
		[FI_CQ_FORMAT_UNSPEC] = sizeof(struct fi_cq_entry), [FI_CQ_FORMAT_CONTEXT] = sizeof(struct fi_cq_entry),
		[FI_CQ_FORMAT_MSG] = sizeof(struct fi_cq_msg_entry), [FI_CQ_FORMAT_DATA] = sizeof(struct fi_cq_data_entry),
		[FI_CQ_FORMAT_TAGGED] = sizeof(struct fi_cq_tagged_entry),
	};
	size_t size = sizes[cq->format], n = 0;
	size_t most = cq->count;
	if (!list_empty(&cq->errors) && (most = ((struct failed *)cq->errors.next)->before - cq->taken) == 0)
		return -FI_EAVAIL;
	for (; n < count && n < most; n++, cq->count--, cq->taken++) {
		// Each format is the beginning of the longest one.
		memcpy((char *)buf + n * size, &cq->ring[cq->first], size);
		cq->first = (cq->first + 1) & (cq->room - 1);
	}
	return n > 0 ? (ssize_t)n : -FI_EAGAIN;
}

static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *from)
{
	struct cq *cq = of(fid, struct cq, fid);
	lock(cq->domain->fabric);
	if (cq->count < count || count == 0)
		progress(cq->domain);
	ssize_t n = take(cq, buf, count);
	cq->empty = n == -FI_EAGAIN ? cq->empty + 1 : 0;
	bool yield = cq->empty >= EMPTY_PER_YIELD;
	if (yield)
		cq->empty = 0;
	unlock(cq->domain->fabric);
	if (yield)
		sched_yield();
	for (ssize_t i = 0; from != NULL && i < n; i++)
		from[i] = FI_ADDR_NOTAVAIL;
	return n;
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
	return cq_readfrom(fid, buf, count, NULL);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *buf, uint64_t flags)
{
	struct cq *cq = of(fid, struct cq, fid);
	(void)flags;
	lock(cq->domain->fabric);
	struct failed *f = (struct failed *)list_pop(&cq->errors);
	unlock(cq->domain->fabric);
	if (f == NULL)
		return -FI_EAGAIN;
	// Programs for older versions pass a shorter entry, and nothing follows err_data_size here.
	*buf = f->entry;
	free(f);
	return 1;
}

bool cq_trywait(struct cq *cq)
{
	uint64_t n;
	progress(cq->domain);
	if (cq->count > 0 || !list_empty(&cq->errors) || cq->domain->dead)
		return false;
	if (!arm(cq->domain))
		return false;
	(void)!read(cq->event_fd, &n, 8);
	cq->asleep = true;
	return true;
}

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count, fi_addr_t *from, const void *cond, int timeout)
{
	struct cq *cq = of(fid, struct cq, fid);
	struct fabric *f = cq->domain->fabric;
	int64_t end = timeout < 0 ? INT64_MAX : now_ms() + timeout;
	(void)cond;
	if (cq->wait_obj == FI_WAIT_NONE)
		return -FI_EINVAL;
	for (;;) {
		ssize_t n = cq_readfrom(fid, buf, count, from);
		int64_t left = end - now_ms();
		if (n != -FI_EAGAIN || left <= 0)
			return n;
		lock(f);
		bool dead = cq->domain->dead, signaled = cq->signaled, sleep = !signaled && cq_trywait(cq);
		cq->signaled = false;
		unlock(f);
		if (dead) { // what it ended is told first
			n = cq_readfrom(fid, buf, count, from);
			return n != -FI_EAGAIN ? n : -FI_ENETDOWN;
		}
		if (signaled)
			return -FI_EAGAIN;
		struct pollfd fd = {.fd = cq->poll_fd, .events = POLLIN};
		if (sleep && poll(&fd, 1, left > INT32_MAX ? -1 : (int)left) < 0 && errno == EINTR)
			return -FI_EINTR;
	}
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count, const void *cond, int timeout)
{
	return cq_sreadfrom(fid, buf, count, NULL, cond, timeout);
}

static int cq_signal(struct fid_cq *fid)
{
	struct cq *cq = of(fid, struct cq, fid);
	lock(cq->domain->fabric);
	cq->signaled = true;
	(void)!write(cq->event_fd, &(uint64_t){1}, 8);
	unlock(cq->domain->fabric);
	return 0;
}

static const char *cq_strerror(struct fid_cq *fid, int error, const void *data, char *buf, size_t len)
{
	(void)fid, (void)data;
	if (buf != NULL && len > 0)
		snprintf(buf, len, "%s", fi_strerror(error));
	return fi_strerror(error);
}

static int cq_close(struct fid *fid)
{
	struct cq *cq = of(fid, struct cq, fid.fid);
	struct fabric *f = cq->domain->fabric;
	struct list *l;
	lock(f);
	if (cq->uses > 0) {
		unlock(f);
		return -FI_EBUSY;
	}
	cq->domain->uses--;
	list_remove(&cq->link);
	unlock(f);
	while ((l = list_pop(&cq->errors)) != NULL)
		free(l);
	close(cq->poll_fd);
	close(cq->event_fd);
	free(cq->ring);
	free(cq);
	return 0;
}

static int cq_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid, (void)other, (void)flags;
	return -FI_ENOSYS;
}

static int cq_control(struct fid *fid, int command, void *arg)
{
	struct cq *cq = of(fid, struct cq, fid.fid);
	if (command == FI_GETWAITOBJ) {
		*(enum fi_wait_obj *)arg = cq->wait_obj;
		return 0;
	}
	if (command != FI_GETWAIT || cq->wait_obj != FI_WAIT_FD)
		return -FI_ENOSYS;
	*(int *)arg = cq->poll_fd;
	return 0;
}

static int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
	(void)fid, (void)name, (void)flags, (void)ops, (void)context;
	return -FI_ENOSYS;
}

static struct fi_ops cq_fid = {.size = sizeof(cq_fid), .close = cq_close, .bind = cq_bind, .control = cq_control, .ops_open = no_ops_open};

static struct fi_ops_cq cq_ops = {
	.size = sizeof(cq_ops), .read = cq_read, .readfrom = cq_readfrom, .readerr = cq_readerr, .sread = cq_sread,
	.sreadfrom = cq_sreadfrom, .signal = cq_signal, .strerror = cq_strerror,
};

static bool watch(int poll_fd, int fd)
{
	struct epoll_event e = {.events = EPOLLIN};
	return epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &e) == 0;
}

int exfi_cq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **out, void *context)
{
	struct domain *d = of(fid, struct domain, fid);
	if (attr->format > FI_CQ_FORMAT_TAGGED)
		return -FI_ENOSYS;
	if (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC && attr->wait_obj != FI_WAIT_FD)
		return -FI_ENOSYS;
	struct cq *cq = calloc(1, sizeof(*cq));
	if (cq == NULL)
		return -FI_ENOMEM;
	cq->domain = d;
	cq->format = attr->format;
	cq->wait_obj = attr->wait_obj == FI_WAIT_UNSPEC ? FI_WAIT_FD : attr->wait_obj;
	cq->limit = attr->size > 0 && attr->size < SIZE_LIMIT ? attr->size : CQ_SIZE;
	if (attr->size >= SIZE_LIMIT)
		cq->limit = SIZE_LIMIT;
	cq->room = 64;
	cq->ring = malloc(cq->room * sizeof(*cq->ring));
	list_init(&cq->errors);
	cq->poll_fd = epoll_create1(EPOLL_CLOEXEC);
	cq->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (cq->ring == NULL || cq->poll_fd < 0 || cq->event_fd < 0 || !watch(cq->poll_fd, cq->event_fd) ||
	    !watch(cq->poll_fd, d->fds[0]) || !watch(cq->poll_fd, d->fds[1]) || !watch(cq->poll_fd, d->fds[2])) {
		int e = errno;
		if (cq->poll_fd >= 0)
			close(cq->poll_fd);
		if (cq->event_fd >= 0)
			close(cq->event_fd);
		free(cq->ring);
		free(cq);
		return e != 0 ? -e : -FI_ENOMEM;
	}
	cq->fid.fid = (struct fid){.fclass = FI_CLASS_CQ, .context = context, .ops = &cq_fid};
	cq->fid.ops = &cq_ops;
	lock(d->fabric);
	d->uses++;
	list_push(&d->cqs, &cq->link);
	unlock(d->fabric);
	*out = &cq->fid;
	return 0;
}
