/* Inside of epoll.c, epmember.c and epwait.c. */
#ifndef DS_EPOLL_INT_H
#define DS_EPOLL_INT_H

#include "fd/epoll.h"

struct member {
	struct epi *e;	      /* NULL: free */
	struct conn *c;
	int fd;		      /* by which the program added it */
	uint32_t events;      /* as the program asked, flags included */
	uint64_t data;	      /* the program's */
	uint64_t tag;	      /* the shadow's entry; the bell's is tag | 1 */
	uint32_t kevents;     /* what the kernel was told last for the shadow */
	uint32_t kseen;	      /* EPOLLHUP and EPOLLERR that the kernel has told */
	uint64_t rx, tx;      /* edges told: ds_edges, conn.blocked */
	int bell;	      /* the bell that is in the instance, or -1 */
	unsigned stamp;	      /* e->seq of the call that reported it last */
	int at;		      /* and where in its answer */
	unsigned vain;	      /* calls in vain since it became active */
	unsigned sleeps;      /* sleeps since then */
	bool tagged;	      /* the entries carry tags */
	bool disabled;	      /* EPOLLONESHOT has fired */
	bool deleted;	      /* by the program; the kernel's entries stay for when it comes back: ctl_del */
	bool unlinked;	      /* deleted, and the kernel's entries too */
	bool fresh;	      /* tell once what holds now (EPOLLET) */
	bool active;	      /* in the list of active ones */
	bool armed, had;      /* ds_arm was called; what it returned */
	struct member *anext, *aprev; /* active list */
	struct member *cnext;	      /* of the conn, under ep_lock */
	struct member *enext, *eprev; /* of the instance, under its lock */
};

struct lock {
	int owner, depth;
};

struct epi {
	struct lock lock;
	int epfd;	  /* one of its descriptors */
	int nfds;
	int users;	  /* calls under way, and one for the descriptors */
	pid_t pid;	  /* that made it */
	int sleepers;	  /* threads in the kernel's epoll_wait */
	int tagged;	  /* members with tags */
	int followers;	  /* armed members whose bell another sleeper has */
	bool nested;	  /* in another set */
	bool nobell;	  /* a bell could not be added: look now and then */
	bool kicked;
	bool others;	  /* the kernel had something to tell when it was asked last, beside bells */
	bool odd;	  /* some active member is not direct both ways: the kernel has a say */
	int kick;	  /* eventfd, -1 until needed */
	unsigned seq;
	unsigned skipped; /* calls since the kernel was asked last */
	struct member *all, *active_head, *active_tail;
	uint32_t next;
};

extern struct lock ep_lock DS_HIDDEN;

void lk_lock(struct lock *l) DS_HIDDEN;
void lk_unlock(struct lock *l) DS_HIDDEN;

struct epi *epi_get(int epfd) DS_HIDDEN;
void epi_put(struct epi *e) DS_HIDDEN;

/* Whose bell it is while the instance has it armed. */
uint32_t epi_who(const struct epi *e) DS_HIDDEN;

bool m_init(void) DS_HIDDEN;
void m_fork_child(void) DS_HIDDEN;

/* These: ep_lock is held, and for m_free and m_attach may be e's too. */
struct member *m_find(struct conn *c, struct epi *e, int fd) DS_HIDDEN;
struct member *m_new(struct conn *c, struct epi *e, int fd, const struct epoll_event *ev) DS_HIDDEN;
void m_free(struct member *m) DS_HIDDEN;
void m_attach(struct member *m) DS_HIDDEN;

/* All of these: e's lock is held. */
void epi_news(struct epi *e) DS_HIDDEN; /* something may be ready: tells those who sleep */
void m_activate(struct member *m) DS_HIDDEN;
void m_passive(struct member *m) DS_HIDDEN;  /* off the active list */
void m_arm(struct member *m) DS_HIDDEN;	     /* barrier and second look are the caller's */
void m_disarm(struct member *m) DS_HIDDEN;
void m_kernel(struct member *m, unsigned want) DS_HIDDEN; /* tells the kernel what the shadow decides */
void m_dead_bell(struct member *m) DS_HIDDEN;
uint32_t m_look(struct member *m, uint32_t kernel) DS_HIDDEN; /* what to report; kernel: what the shadow's entry said */
void m_told(struct member *m) DS_HIDDEN;
struct member *m_by_tag(uint64_t data) DS_HIDDEN; /* NULL: not a tag; caller checks m->tag */
bool tag_is_kick(uint64_t data) DS_HIDDEN;
bool tag_is_ours(uint64_t data) DS_HIDDEN;
void epi_kick(struct epi *e) DS_HIDDEN;
/* Arms every active member; true if one of them has something to tell meanwhile. */
bool epi_arm_all(struct epi *e) DS_HIDDEN;
/* A sleep is over: those that are not idle need no bell for now. */
void epi_wake(struct epi *e) DS_HIDDEN;

#endif
