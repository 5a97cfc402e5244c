// pep.c: passive endpoints, and the calls that connect, accept and reject.
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "exnet.h"

static int dial(struct ep *ep, const union address *to)
{
	union address from = ep->local;
	int fd = ep->bound_fd;
	bool bound = fd >= 0;
	ep->bound_fd = -1;
	if (!bound)
		fd = socket(to->sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (!bound && from.sa.sa_family == to->sa.sa_family) {
		if (from.sa.sa_family == AF_INET)
			from.in.sin_port = 0;
		else
			from.in6.sin6_port = 0;
		if (bind(fd, &from.sa, exfi_addr_len(&from)) != 0) {
			int e = errno;
			close(fd);
			return -e;
		}
	}
	if (connect(fd, &to->sa, exfi_addr_len(to)) != 0 && errno != EINPROGRESS) {
		int e = errno;
		close(fd);
		return -e;
	}
	return fd;
}

static int ep_connect(struct fid_ep *fid, const void *addr, const void *param, size_t len)
{
	struct ep *ep = of(fid, struct ep, fid);
	union address to = ep->peer;
	if (addr != NULL && !exfi_addr_from(&to, addr, sizeof(struct sockaddr_storage)))
		return -FI_EINVAL;
	if (len > CM_DATA || exfi_addr_len(&to) == 0)
		return -FI_EINVAL;
	if (ep->eq == NULL)
		return -FI_ENOEQ;
	lock(ep->domain->fabric);
	int r = ep->state == IDLE ? dial(ep, &to) : -FI_EOPBADSTATE;
	if (r >= 0) {
		struct cm *cm = cm_new(ep->domain->fabric, ep->eq, r, EPOLLOUT);
		if (cm == NULL) {
			close(r);
			unlock(ep->domain->fabric);
			return -FI_ENOMEM;
		}
		cm->ep = ep;
		if (len > 0)
			memcpy(cm->out, param, len);
		cm->out_len = len;
		ep->cm = cm;
		ep->peer = to;
		(void)ep_on(ep, ON_DIAL, 0);
		r = 0;
	}
	unlock(ep->domain->fabric);
	return r;
}

// leave ends what a request has of its passive endpoint.
static void leave(struct cm *cm)
{
	if (cm->pep != NULL)
		cm->pep->waiting--;
	cm->pep = NULL;
	cm->eq = NULL;
}

static int ep_accept(struct fid_ep *fid, const void *param, size_t len)
{
	struct ep *ep = of(fid, struct ep, fid);
	if (len > CM_DATA)
		return -FI_EINVAL;
	if (ep->eq == NULL)
		return -FI_ENOEQ;
	lock(ep->domain->fabric);
	struct cm *cm = ep->cm;
	int r = 0;
	if (ep->state != OFFERED)
		r = -FI_EOPBADSTATE;
	if (r == 0 && (r = ep_connect_ports(ep, &cm->head)) == 0)
		r = cm_send(cm, CM_ACCEPT, ep, param, len);
	if (r == 0) {
		(void)ep_on(ep, ON_ACCEPT, 0);
		struct epoll_event e = {.events = EPOLLIN, .data.ptr = cm};
		leave(cm);
		cm->eq = ep->eq;
		(void)epoll_ctl(cm->eq->poll_fd, EPOLL_CTL_ADD, cm->fd, &e);
	} else if (r != -FI_EOPBADSTATE) {
		(void)ep_on(ep, ON_FAILED, -r);
	}
	unlock(ep->domain->fabric);
	return r;
}

static int ep_shutdown(struct fid_ep *fid, uint64_t flags)
{
	struct ep *ep = of(fid, struct ep, fid);
	(void)flags;
	lock(ep->domain->fabric);
	// The one who shuts down hears of it, too.
	(void)ep_on(ep, ON_SHUTDOWN, FI_ESHUTDOWN);
	unlock(ep->domain->fabric);
	return 0;
}

static int ep_getname(fid_t fid, void *addr, size_t *len)
{
	return cm_getname(&of(fid, struct ep, fid.fid)->local, addr, len);
}

static int ep_getpeer(struct fid_ep *fid, void *addr, size_t *len)
{
	return cm_getname(&of(fid, struct ep, fid)->peer, addr, len);
}

static int ep_setname(fid_t fid, void *addr, size_t len)
{
	return exfi_addr_from(&of(fid, struct ep, fid.fid)->local, addr, len) ? 0 : -FI_EINVAL;
}

static int no_listen(struct fid_pep *fid)
{
	(void)fid;
	return -FI_ENOSYS;
}

static int no_reject(struct fid_pep *fid, fid_t handle, const void *param, size_t len)
{
	(void)fid, (void)handle, (void)param, (void)len;
	return -FI_ENOSYS;
}

static int no_join(struct fid_ep *fid, const void *addr, uint64_t flags, struct fid_mc **mc, void *context)
{
	(void)fid, (void)addr, (void)flags, (void)mc, (void)context;
	return -FI_ENOSYS;
}

struct fi_ops_cm exfi_ep_cm = {
	.size = sizeof(exfi_ep_cm), .setname = ep_setname, .getname = ep_getname, .getpeer = ep_getpeer, .connect = ep_connect,
	.listen = no_listen, .accept = ep_accept, .reject = no_reject, .shutdown = ep_shutdown, .join = no_join,
};

// open_socket binds the socket of a passive endpoint.
static int open_socket(struct pep *p)
{
	socklen_t len = sizeof(p->local);
	int fd = socket(p->local.sa.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
	if (bind(fd, &p->local.sa, exfi_addr_len(&p->local)) != 0 || getsockname(fd, &p->local.sa, &len) != 0) {
		int e = errno;
		close(fd);
		return -e;
	}
	p->fd = fd;
	return 0;
}

static bool watch(struct pep *p, int fd)
{
	return epoll_ctl(p->eq->poll_fd, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = p}) == 0;
}

static void unwatch(struct pep *p, int fd)
{
	(void)epoll_ctl(p->eq->poll_fd, EPOLL_CTL_DEL, fd, NULL);
}

// begin makes a bound socket take connections.
static int begin(struct pep *p)
{
	p->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (p->timer >= 0 && listen(p->fd, CM_BACKLOG) == 0 && watch(p, p->timer) && watch(p, p->fd)) {
		p->accepts = ACCEPTS;
		return 0;
	}
	int e = errno;
	if (p->timer >= 0)
		close(p->timer);
	return -e;
}

// retry sets the timer for the next try; 0: there is none.
static void retry(struct pep *p, long ns)
{
	(void)timerfd_settime(p->timer, 0, &(struct itimerspec){.it_value.tv_nsec = ns}, NULL);
}

// put_off lets connections wait: the socket would stay readable, and whoever sleeps would not.
static void put_off(struct pep *p)
{
	enum { RETRY_NS = 50000000 };
	if (p->accepts == ACCEPTS) {
		WARN(EP_CTRL, "connections wait: %s\n", strerror(errno));
		unwatch(p, p->fd);
	}
	p->accepts = ACCEPTS_LATER;
	retry(p, RETRY_NS);
}

static void resume(struct pep *p)
{
	if (p->accepts != ACCEPTS_LATER)
		return;
	retry(p, 0);
	if (watch(p, p->fd))
		p->accepts = ACCEPTS;
	else
		put_off(p);
}

static int pep_listen(struct fid_pep *fid)
{
	struct pep *p = of(fid, struct pep, fid);
	int r = 0;
	lock(p->fabric);
	if (p->fabric->child) // the epoll set is the parent's, which does not know this endpoint
		r = -FI_EOPBADSTATE;
	else if (p->eq == NULL)
		r = -FI_ENOEQ;
	else if (exfi_addr_len(&p->local) == 0)
		r = -FI_EADDRNOTAVAIL;
	else if (p->accepts == ACCEPTS_NOT && (p->fd >= 0 || (r = open_socket(p)) == 0))
		r = begin(p);
	unlock(p->fabric);
	return r;
}

// oldest ends the longest of those that have connected and said nothing.
static bool oldest(struct pep *p)
{
	for (struct list *l = p->fabric->cms.next; l != &p->fabric->cms; l = l->next) {
		struct cm *cm = of(l, struct cm, link);
		if (cm->pep == p && cm->state == ARRIVING) {
			cm_free(cm);
			return true;
		}
	}
	return false;
}

void cm_accept(struct pep *p)
{
	int fd = accept4(p->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
		put_off(p);
		return;
	}
	resume(p);
	if (fd < 0)
		return;
	struct cm *cm = p->waiting < CM_BACKLOG || oldest(p) ? cm_new(p->fabric, p->eq, fd, EPOLLIN) : NULL;
	if (cm == NULL) {
		close(fd);
		return;
	}
	(void)state_step(&cm->state, ON_ARRIVES);
	cm->pep = p;
	p->waiting++;
}

// withdraw ends a request, and the endpoint that was to accept it.
static void withdraw(struct cm *cm)
{
	if (cm->ep != NULL)
		(void)ep_on(cm->ep, ON_WITHDRAWN, FI_ECONNABORTED);
	else
		cm_free(cm);
}

static int pep_reject(struct fid_pep *fid, fid_t handle, const void *param, size_t len)
{
	struct pep *p = of(fid, struct pep, fid);
	if (handle == NULL || handle->fclass != FI_CLASS_CONNREQ || len > CM_DATA)
		return -FI_EINVAL;
	struct cm *cm = of(handle, struct cm, fid);
	lock(p->fabric);
	(void)cm_send(cm, CM_REJECT, NULL, param, len);
	withdraw(cm);
	unlock(p->fabric);
	return 0;
}

static int pep_getname(fid_t fid, void *addr, size_t *len)
{
	return cm_getname(&of(fid, struct pep, fid.fid)->local, addr, len);
}

static int pep_setname(fid_t fid, void *addr, size_t len)
{
	struct pep *p = of(fid, struct pep, fid.fid);
	if (p->accepts != ACCEPTS_NOT)
		return -FI_EBUSY;
	if (!exfi_addr_from(&p->local, addr, len))
		return -FI_EINVAL;
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
	return open_socket(p);
}

static int no_getpeer(struct fid_ep *fid, void *addr, size_t *len)
{
	(void)fid, (void)addr, (void)len;
	return -FI_ENOSYS;
}

static int no_connect(struct fid_ep *fid, const void *addr, const void *param, size_t len)
{
	(void)fid, (void)addr, (void)param, (void)len;
	return -FI_ENOSYS;
}

static int no_accept(struct fid_ep *fid, const void *param, size_t len)
{
	(void)fid, (void)param, (void)len;
	return -FI_ENOSYS;
}

static int no_shutdown(struct fid_ep *fid, uint64_t flags)
{
	(void)fid, (void)flags;
	return -FI_ENOSYS;
}

static struct fi_ops_cm pep_cm = {
	.size = sizeof(pep_cm), .setname = pep_setname, .getname = pep_getname, .getpeer = no_getpeer, .connect = no_connect,
	.listen = pep_listen, .accept = no_accept, .reject = pep_reject, .shutdown = no_shutdown, .join = no_join,
};

static int pep_close(struct fid *fid)
{
	struct pep *p = of(fid, struct pep, fid.fid);
	struct fabric *f = p->fabric;
	lock(f);
	if (p->eq != NULL)
		eq_forget(p->eq, fid);
	// The requests that the program was told of are its own: it accepts or rejects them.
	for (struct list *l = f->cms.next, *next; l != &f->cms; l = next) {
		struct cm *cm = of(l, struct cm, link);
		next = l->next;
		if (cm->pep != p)
			continue;
		if (cm->state == ARRIVING)
			cm_free(cm);
		else
			leave(cm);
	}
	if (p->accepts != ACCEPTS_NOT) {
		unwatch(p, p->fd);
		unwatch(p, p->timer);
		close(p->timer);
	}
	if (p->fd >= 0)
		close(p->fd);
	if (p->eq != NULL)
		p->eq->uses--;
	f->uses--;
	list_remove(&p->link);
	unlock(f);
	fi_freeinfo(p->info);
	free(p);
	return 0;
}

static int pep_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct pep *p = of(fid, struct pep, fid.fid);
	(void)flags;
	if (other->fclass != FI_CLASS_EQ || p->eq != NULL)
		return -FI_EINVAL;
	lock(p->fabric);
	p->eq = of(other, struct eq, fid.fid);
	p->eq->uses++;
	unlock(p->fabric);
	return 0;
}

static int pep_control(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)arg;
	return command == FI_BACKLOG ? 0 : -FI_ENOSYS;
}

static int no_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context)
{
	(void)fid, (void)name, (void)flags, (void)ops, (void)context;
	return -FI_ENOSYS;
}

static struct fi_ops pep_fid = {
	.size = sizeof(pep_fid), .close = pep_close, .bind = pep_bind, .control = pep_control, .ops_open = no_ops_open,
};

int exfi_pep(struct fid_fabric *fid, struct fi_info *info, struct fid_pep **out, void *context)
{
	struct fabric *f = of(fid, struct fabric, fid);
	if (info == NULL || info->ep_attr == NULL || info->ep_attr->type != FI_EP_MSG)
		return -FI_EINVAL;
	struct pep *p = calloc(1, sizeof(*p));
	if (p == NULL || (p->info = fi_dupinfo(info)) == NULL) {
		free(p);
		return -FI_ENOMEM;
	}
	p->info->handle = NULL;
	p->fabric = f;
	p->fd = -1;
	p->fid.fid = (struct fid){.fclass = FI_CLASS_PEP, .context = context, .ops = &pep_fid};
	p->fid.ops = &exfi_ep_ops;
	p->fid.cm = &pep_cm;
	// Without an address it waits for fi_setname.
	int r = exfi_addr_from(&p->local, info->src_addr, info->src_addrlen) ? open_socket(p) : info->src_addr != NULL ? -FI_EINVAL : 0;
	if (r != 0) {
		fi_freeinfo(p->info);
		free(p);
		return r;
	}
	lock(f);
	f->uses++;
	list_push(&f->peps, &p->link);
	unlock(f);
	*out = &p->fid;
	return 0;
}
