#include "fd/dgwait.h"
#include "fd/epoll_int.h"

enum { IN = POLLIN | POLLRDNORM };

/* Gives back all that w has. */
static void give_back(struct dgwait *w)
{
	while (w->asleep > 0)
		ds_dg_sleeper(w->of[--w->asleep].d, -1);
	while (w->n > 0)
		ds_dg_put(w->of[--w->n].d);
}

/* A jump leaves the call: struct dgwait *. */
static void jumped(void *call) { give_back(call); }

void dgwait_begin(struct dgwait *w, const struct pollfd *fds, nfds_t n)
{
	bool alone = ds_one_thread();

	ds_critical_begin();
	w->n = w->asleep = 0;
	w->slot = ds_cleanup_push_frame(jumped, w);
	for (nfds_t i = 0; i < n; i++) {
		uintptr_t word = fd_word(fds[i].fd);

		if ((word & 3) == FD_EPOLL)
			dgset_native(word_epi(word));
		if (!word_dgram(word) || !(fds[i].events & IN))
			continue;
		struct ds_dgram *d = dgram_get(fds[i].fd, word);
		if (d && w->n < DGWAIT_MOST && (ds_dg_inward(d) || !alone)) {
			w->of[w->n].d = d;
			w->of[w->n++].at = i;
			continue;
		}
		if (d && w->n == DGWAIT_MOST)
			ds_dg_harden(d, DS_WHY_UNSUPPORTED_CALL);
		if (d)
			ds_dg_put(d);
	}
	ds_critical_end();
}

void dgwait_end(struct dgwait *w)
{
	ds_critical_begin();
	ds_cleanup_pop(w->slot);
	give_back(w);
	ds_critical_end();
}

bool dgwait_ready(struct dgwait *w)
{
	for (unsigned i = 0; i < w->n; i++)
		if (ds_dg_ready(w->of[i].d))
			return true;
	return false;
}

void dgwait_look(struct dgwait *w, const struct pollfd *fds)
{
	for (unsigned i = 0; i < w->n; i++)
		ds_dg_due(w->of[i].d, fds[w->of[i].at].fd);
}

bool dgwait_awake(const struct dgwait *w)
{
	for (unsigned i = 0; i < w->n; i++)
		if (__atomic_load_n(&w->of[i].d->awake, __ATOMIC_RELAXED))
			return true;
	return false;
}

void dgwait_tick(struct dgwait *w, const struct pollfd *fds)
{
	for (unsigned i = 0; i < w->n; i++)
		ds_dg_eager_tick(w->of[i].d, fds[w->of[i].at].fd);
}

int dgwait_sleep(struct dgwait *w, const struct pollfd *fds)
{
	int how = DGWAIT_SLEEP;

	for (unsigned i = 0; i < w->n; i++) {
		ds_critical_begin();
		ds_dg_sleeper(w->of[i].d, 1);
		w->asleep = i + 1;
		ds_critical_end();
		if (!ds_dg_sleep(w->of[i].d, fds[w->of[i].at].fd))
			how = DGWAIT_LOOK;
	}
	return dgwait_ready(w) ? DGWAIT_READY : how;
}

void dgwait_awoke(struct dgwait *w)
{
	ds_critical_begin();
	while (w->asleep > 0)
		ds_dg_sleeper(w->of[--w->asleep].d, -1);
	ds_critical_end();
}

int dgwait_tell(struct dgwait *w, struct pollfd *fds, int n)
{
	for (unsigned i = 0; i < w->n; i++) {
		struct pollfd *p = &fds[w->of[i].at];

		if (!ds_dg_ready(w->of[i].d))
			continue;
		n += p->revents == 0;
		p->revents |= p->events & IN;
	}
	return n;
}
