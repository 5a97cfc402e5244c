/* The active members of an instance, which every round looks at: in the order in which they were
 * reported last, so that those found in a round are mostly in the order in which they came. */
#include "fd/epoll_int.h"

/* Puts m on the active list, where it is not, before next (NULL: at the end). */
static inline void insert(struct member *m, struct member *next)
{
	struct member **to = next ? &next->aprev : &m->e->active_tail;

	m->active = true;
	m->e->nactive++;
	m->anext = next;
	m->aprev = *to;
	if (m->aprev)
		m->aprev->anext = m;
	else
		__atomic_store_n(&m->e->active_head, m, __ATOMIC_RELAXED);
	*to = m;
}

void m_activate(struct member *m)
{
	m->vain = m->sleeps = 0;
	if (!m->active)
		insert(m, NULL);
}

void m_passive(struct member *m)
{
	if (!m->active)
		return;
	m->active = false;
	m->e->nactive--;
	if (m->aprev)
		m->aprev->anext = m->anext;
	else
		__atomic_store_n(&m->e->active_head, m->anext, __ATOMIC_RELAXED);
	if (m->anext)
		m->anext->aprev = m->aprev;
	else
		m->e->active_tail = m->aprev;
}

struct member *m_last(struct member *m, struct member *next)
{
	m->vain = m->sleeps = 0;
	if (m->active && m->joined && m->anext == next)
		return m;
	m_passive(m);
	if (!m->joined)
		return next;
	insert(m, next);
	return m;
}
