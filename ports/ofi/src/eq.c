// eq.c: event queues. Who reads one drives the connections of its endpoints.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "exnet.h"

// add queues an event. The descriptor is readable while there are any.
static void add(struct eq *eq, struct event *e)
{
	list_push(&eq->events, &e->link);
	if (!eq->signaled)
		eq->signaled = write(eq->event_fd, &(uint64_t){1}, 8) == 8;
}

static void settle(struct eq *eq)
{
	uint64_t n;
	if (eq->signaled && list_empty(&eq->events)) {
		(void)!read(eq->event_fd, &n, 8);
		eq->signaled = false;
	}
}

void eq_cm_event(struct eq *eq, uint32_t event, fid_t fid, struct fi_info *info, const void *data, size_t len)
{
	struct event *e = calloc(1, sizeof(*e));
	if (e == NULL) {
		WARN(EQ, "no memory: an event is lost\n");
		fi_freeinfo(info);
		return;
	}
	struct fi_eq_cm_entry entry = {.fid = fid, .info = info};
	e->event = event;
	e->info = info;
	e->size = sizeof(entry) + len;
	memcpy(e->bytes, &entry, sizeof(entry));
	if (len > 0)
		memcpy(e->bytes + sizeof(entry), data, len);
	add(eq, e);
}

void eq_error(struct eq *eq, fid_t fid, int error, const void *data, size_t len)
{
	struct event *e = calloc(1, sizeof(*e));
	if (e == NULL) {
		WARN(EQ, "no memory: an event is lost\n");
		return;
	}
	e->error = true;
	e->err = (struct fi_eq_err_entry){.fid = fid, .context = fid->context, .err = error, .prov_errno = error, .err_data_size = len};
	if (len > 0)
		memcpy(e->bytes, data, len);
	add(eq, e);
}

void eq_forget(struct eq *eq, fid_t fid)
{
	for (struct list *l = eq->events.next, *next; l != &eq->events; l = next) {
		struct event *e = (struct event *)l;
		struct fi_eq_cm_entry entry;
		next = l->next;
		memcpy(&entry, e->bytes, sizeof(entry));
		if (e->error ? e->err.fid != fid : e->size < sizeof(entry) || entry.fid != fid)
			continue;
		if (e->info != NULL) {
			cm_free(of(e->info->handle, struct cm, fid));
			fi_freeinfo(e->info);
		}
		list_remove(l);
		free(e);
	}
	settle(eq);
}

static ssize_t take(struct eq *eq, uint32_t *event, void *buf, size_t len, uint64_t flags)
{
	if (list_empty(&eq->events))
		return -FI_EAGAIN;
	struct event *e = (struct event *)eq->events.next;
	if (e->error)
		return -FI_EAVAIL;
	// Data of the peer that does not fit is cut off; the entry has to fit.
	size_t least = e->size < sizeof(struct fi_eq_cm_entry) ? e->size : sizeof(struct fi_eq_cm_entry);
	if (len < least)
		return -FI_ETOOSMALL;
	*event = e->event;
	size_t n = e->size < len ? e->size : len;
	memcpy(buf, e->bytes, n);
	if (!(flags & FI_PEEK)) {
		list_remove(&e->link);
		free(e);
		settle(eq);
	}
	return (ssize_t)n;
}

static ssize_t eq_read(struct fid_eq *fid, uint32_t *event, void *buf, size_t len, uint64_t flags)
{
	struct eq *eq = of(fid, struct eq, fid);
	lock(eq->fabric);
	cm_work(eq);
	ssize_t n = take(eq, event, buf, len, flags);
	unlock(eq->fabric);
	return n;
}

static ssize_t eq_readerr(struct fid_eq *fid, struct fi_eq_err_entry *buf, uint64_t flags)
{
	struct eq *eq = of(fid, struct eq, fid);
	lock(eq->fabric);
	struct event *e = (struct event *)eq->events.next;
	if (list_empty(&eq->events) || !e->error) {
		unlock(eq->fabric);
		return -FI_EAGAIN;
	}
	size_t n = e->err.err_data_size;
	memcpy(eq->err_data, e->bytes, n);
	// A program may have given room for the data; without, it gets ours.
	if (buf->err_data != NULL && buf->err_data_size > 0) {
		void *room = buf->err_data;
		size_t size = buf->err_data_size < n ? buf->err_data_size : n;
		memcpy(room, eq->err_data, size);
		*buf = e->err;
		buf->err_data = room;
		buf->err_data_size = size;
	} else {
		*buf = e->err;
		buf->err_data = n > 0 ? eq->err_data : NULL;
	}
	if (!(flags & FI_PEEK)) {
		list_remove(&e->link);
		free(e);
		settle(eq);
	}
	unlock(eq->fabric);
	return sizeof(*buf);
}

static ssize_t eq_write(struct fid_eq *fid, uint32_t event, const void *buf, size_t len, uint64_t flags)
{
	struct eq *eq = of(fid, struct eq, fid);
	struct event *e;
	(void)flags;
	if (len > sizeof(e->bytes))
		return -FI_ETOOSMALL;
	if ((e = calloc(1, sizeof(*e))) == NULL)
		return -FI_ENOMEM;
	e->event = event;
	e->size = len;
	if (len > 0)
		memcpy(e->bytes, buf, len);
	lock(eq->fabric);
	add(eq, e);
	unlock(eq->fabric);
	return (ssize_t)len;
}

bool eq_trywait(struct eq *eq)
{
	cm_work(eq);
	return list_empty(&eq->events);
}

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static ssize_t eq_sread(struct fid_eq *fid, uint32_t *event, void *buf, size_t len, int timeout, uint64_t flags)
{
	struct eq *eq = of(fid, struct eq, fid);
	int64_t end = timeout < 0 ? INT64_MAX : now_ms() + timeout;
	for (;;) {
		ssize_t n = eq_read(fid, event, buf, len, flags);
		int64_t left = end - now_ms();
		if (n != -FI_EAGAIN || left <= 0)
			return n;
		struct pollfd fd = {.fd = eq->poll_fd, .events = POLLIN};
		if (poll(&fd, 1, left > INT32_MAX ? -1 : (int)left) < 0 && errno == EINTR)
			return -FI_EINTR;
	}
}

static const char *eq_strerror(struct fid_eq *fid, int error, const void *data, char *buf, size_t len)
{
	(void)fid, (void)data;
	if (buf != NULL && len > 0)
		snprintf(buf, len, "%s", fi_strerror(error));
	return fi_strerror(error);
}

static int eq_close(struct fid *fid)
{
	struct eq *eq = of(fid, struct eq, fid.fid);
	struct fabric *f = eq->fabric;
	lock(f);
	if (eq->uses > 0) {
		unlock(f);
		return -FI_EBUSY;
	}
	while (!list_empty(&eq->events))
		free(list_pop(&eq->events));
	f->uses--;
	list_remove(&eq->link);
	unlock(f);
	if (eq->poll_fd >= 0) {
		close(eq->poll_fd);
		close(eq->event_fd);
	}
	free(eq);
	return 0;
}

static int eq_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void)fid, (void)other, (void)flags;
	return -FI_ENOSYS;
}

static int eq_control(struct fid *fid, int command, void *arg)
{
	struct eq *eq = of(fid, struct eq, fid.fid);
	if (command == FI_GETWAITOBJ)
		*(enum fi_wait_obj *)arg = FI_WAIT_FD;
	else if (command == FI_GETWAIT)
		*(int *)arg = eq->poll_fd;
	else
		return -FI_ENOSYS;
	return 0;
}

static int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
	(void)fid, (void)name, (void)flags, (void)ops, (void)context;
	return -FI_ENOSYS;
}

static struct fi_ops eq_fid = {.size = sizeof(eq_fid), .close = eq_close, .bind = eq_bind, .control = eq_control, .ops_open = no_ops_open};

static struct fi_ops_eq eq_ops = {
	.size = sizeof(eq_ops), .read = eq_read, .readerr = eq_readerr, .write = eq_write, .sread = eq_sread, .strerror = eq_strerror,
};

int exfi_eq_open(struct fid_fabric *fid, struct fi_eq_attr *attr, struct fid_eq **out, void *context)
{
	struct fabric *f = of(fid, struct fabric, fid);
	if (attr != NULL && attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC && attr->wait_obj != FI_WAIT_FD)
		return -FI_ENOSYS;
	struct eq *eq = calloc(1, sizeof(*eq));
	if (eq == NULL)
		return -FI_ENOMEM;
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
	eq->fabric = f;
	list_init(&eq->events);
	eq->poll_fd = epoll_create1(EPOLL_CLOEXEC);
	eq->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (eq->poll_fd < 0 || eq->event_fd < 0 || epoll_ctl(eq->poll_fd, EPOLL_CTL_ADD, eq->event_fd, &e) != 0) {
		int why = errno;
		if (eq->poll_fd >= 0)
			close(eq->poll_fd);
		if (eq->event_fd >= 0)
			close(eq->event_fd);
		free(eq);
		return -why;
	}
	eq->fid.fid = (struct fid){.fclass = FI_CLASS_EQ, .context = context, .ops = &eq_fid};
	eq->fid.ops = &eq_ops;
	lock(f);
	list_push(&f->eqs, &eq->link);
	f->uses++;
	unlock(f);
	*out = &eq->fid;
	return 0;
}
