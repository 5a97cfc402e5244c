// fork.c: a child has the descriptors of its parent, but not its connections: they end when the
// parent does, even if the child lives on.
#include <unistd.h>

#include "exnet.h"

static pthread_mutex_t fabrics_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list fabrics = {&fabrics, &fabrics};

void exfi_fork_add(struct fabric *f)
{
	pthread_mutex_lock(&fabrics_lock);
	list_push(&fabrics, &f->link);
	pthread_mutex_unlock(&fabrics_lock);
}

void exfi_fork_remove(struct fabric *f)
{
	pthread_mutex_lock(&fabrics_lock);
	list_remove(&f->link);
	pthread_mutex_unlock(&fabrics_lock);
}

static void before(void)
{
	pthread_mutex_lock(&fabrics_lock);
	for (struct list *l = fabrics.next; l != &fabrics; l = l->next)
		lock(of(l, struct fabric, link));
}

static void after(void)
{
	for (struct list *l = fabrics.next; l != &fabrics; l = l->next)
		unlock(of(l, struct fabric, link));
	pthread_mutex_unlock(&fabrics_lock);
}

// leave gives up what the child has of a fabric: the sockets whose end others wait for. Their
// numbers are the parent's, and stay with whatever the child opens.
static void leave(struct fabric *f)
{
	if (f->child) // of a child: by now the numbers are what that has opened
		return;
	f->child = true;
	for (struct list *l = f->domains.next; l != &f->domains; l = l->next) {
		struct domain *d = of(l, struct domain, link);
		d->dead = true;
		close(d->fds[1]);
		close(rma2_descriptor(d->rma));
		for (uint32_t i = 0; i < d->eps_room; i++)
			if (d->eps[i] != NULL)
				(void)ep_on(d->eps[i], ON_FORK, 0);
	}
	// What they tell of is the parent's, which still listens and sleeps by them.
	for (struct list *l = f->eqs.next; l != &f->eqs; l = l->next) {
		struct eq *eq = of(l, struct eq, link);
		close(eq->poll_fd);
		close(eq->event_fd);
		eq->poll_fd = eq->event_fd = -1;
	}
	// Who connects to the parent when that has ended is refused.
	for (struct list *l = f->peps.next; l != &f->peps; l = l->next) {
		struct pep *p = of(l, struct pep, link);
		if (p->fd >= 0)
			close(p->fd);
		p->fd = -1;
	}
	for (struct list *l = f->cms.next; l != &f->cms; l = l->next) {
		struct cm *cm = of(l, struct cm, link);
		close(cm->fd);
		cm->fd = -1;
		cm->eq = NULL; // the child may close that first
		if (cm->ep != NULL)
			cm->ep->cm = NULL;
		cm->ep = NULL;
	}
}

static void in_child(void)
{
	for (struct list *l = fabrics.next; l != &fabrics; l = l->next)
		leave(of(l, struct fabric, link));
	after();
}

bool exfi_fork_init(void)
{
	return pthread_atfork(before, after, in_child) == 0;
}
