/* Inside of epoll.c, epmember.c, epready.c and epwait.c. */
#ifndef DS_EPOLL_INT_H
#define DS_EPOLL_INT_H

#include "fd/epoll.h"

/* member.before of one that has no place among the foreign events of a round. */
enum { NOWHERE = -1 };

struct member {
	struct epi *e;	      /* NULL: free. Atomic: m_by_tag reads it without the lock */
	struct conn *c;
	int fd;		      /* by which the program added it */
	uint32_t events;      /* as the program asked, flags included */
	uint64_t data;	      /* the program's */
	uint64_t tag;	      /* the shadow's entry; the bell's is tag | 1 */
	uint32_t kevents;     /* what the kernel was told last for the shadow */
	uint32_t kseen;	      /* EPOLLHUP and EPOLLERR that the kernel has told */
	uint32_t kpend;	      /* what the kernel has said of the shadow since the program was told */
	uint32_t kleft;	      /* what of it stays when `got` is told: see look_edge */
	uint64_t rx, tx;      /* edges told: ds_edges, conn.blocked */
	uint64_t next_rx, next_tx; /* what they are when `got` is told */
	uint32_t got;	      /* what m_look has found */
	uint64_t key;	      /* when that came, by ds_ticks */
	uint64_t since;	      /* when it was told last, or added: what is told now counts as no older */
	uint64_t heard;	      /* this round's event of the shadow counts as of then; 0: none */
	uint64_t placed;      /* the key that it got as nobody else knew: place_heard; 0: none */
	int before;	      /* this round: it came before the foreign event of that index; or NOWHERE */
	int bell;	      /* the bell that is in the instance, or -1 */
	unsigned vain;	      /* calls in vain since it became active */
	unsigned sleeps;      /* sleeps since then */
	bool tagged;	      /* the shadow's entry carries the tag */
	bool joined;	      /* the conn has, or had, a bell: the core is asked */
	bool straight;	      /* it was direct both ways when last looked at */
	bool sends;	      /* it sent direct then */
	bool stranded;	      /* it ran out of room in the segment, and sends on the shadow now */
	bool disabled;	      /* EPOLLONESHOT has fired */
	bool deleted;	      /* by the program; the kernel's entries stay for when it comes back: ctl_del */
	bool unlinked;	      /* deleted, and the kernel's entries too */
	bool fresh;	      /* tell once what holds now (EPOLLET) */
	bool active;	      /* in the list of active ones */
	bool listed;	      /* in the list of a round */
	bool unsure;	      /* heard, but what was found in segments may be older: no bell was armed */
	bool armed, had;      /* ds_arm was called; what it returned */
	bool rings;	      /* its bell may have been rung since it was read */
	bool read;	      /* it was read here, of which the conn's other members are to be told: epi_pass_on */
	struct member *anext, *aprev; /* active list */
	struct member *rnext;	      /* list of a round */
	struct member *cnext;	      /* of the conn, under ep_lock */
	struct member *enext, *eprev; /* of the instance */
};

struct epi {
	struct ds_lock lock;
	int epfd;	  /* one of its descriptors */
	int nfds;
	int users;	  /* calls under way, and one for the descriptors */
	pid_t pid;	  /* that made it */
	int sleepers;	  /* threads in the kernel's epoll_wait, */
	int naps;	  /* of which these sleep for DS_FOLLOW_MS at most */
	int joined;	  /* members that have joined, */
	int nactive;	  /* in the active list */
	int crooked;	  /* that are not known to be direct both ways */
	int followers;	  /* armed members whose bell a sleeper of another process has */
	int reads;	  /* members with `read` */
	bool nested;	  /* in another set, */
	bool holds;	  /* with another instance in it */
	bool nobell;	  /* a bell could not be added: look now and then */
	bool woken;
	bool others;	  /* the kernel had something to tell when it was asked last, beside bells */
	int wakefd;	  /* eventfd, -1 until needed */
	unsigned skipped; /* calls that found something since the kernel was asked last, */
	uint64_t asked;	  /* which was then, by ds_ticks */
	struct member *all, *active_head, *active_tail;
	uint32_t next;
};

extern struct ds_lock ep_lock DS_HIDDEN;

/* By which the instances of this process have bells: ds_arm_sets. */
extern uint32_t ep_name DS_HIDDEN;

/* Both locks may be taken again by who holds them (ds_own_again): the core may tell of a bell at any time. */
static inline void lk_lock(struct ds_lock *l) { ds_own_again(l); }
static inline void lk_unlock(struct ds_lock *l) { ds_own_unlock(l); }

/* The instance of epfd, with a reference for epi_put; NULL: none of ours. Takes ep_lock at most. */
struct epi *epi_get(int epfd) DS_HIDDEN;
void epi_put(struct epi *e) DS_HIDDEN;

/* Settles all instances that are in other sets. No lock is held. */
void epi_settle_nested(bool rung) DS_HIDDEN;

/* Bells that m_rung has read in e: the other instances that hold their conns look again. e's lock is not held. */
void epi_pass_on(struct epi *e) DS_HIDDEN;

bool m_init(void) DS_HIDDEN;
void m_fork_child(void) DS_HIDDEN;

/* Of a conn: it has got a bell; a call on it begins, and a member is armed; it is going. Take both locks. */
void m_bell(struct conn *c) DS_HIDDEN;
void m_active(struct conn *c) DS_HIDDEN;
void m_forget(struct conn *c) DS_HIDDEN;

/* The member of c in e by fd, or NULL. With ep_lock. */
struct member *m_find(struct conn *c, struct epi *e, int fd) DS_HIDDEN;

/* These with ep_lock and e's lock. A new member, that the kernel does not know (NULL: no memory); one that goes, the
 * kernel's entries being gone; the conn has got a bell. */
struct member *m_new(struct conn *c, struct epi *e, int fd, const struct epoll_event *ev) DS_HIDDEN;
void m_free(struct member *m) DS_HIDDEN;
void m_attach(struct member *m) DS_HIDDEN;

/* All of these with e's lock: */
void m_activate(struct member *m) DS_HIDDEN;
void m_passive(struct member *m) DS_HIDDEN;  /* off the active list */
void m_arm(struct member *m) DS_HIDDEN;	     /* barrier and second look are the caller's */
void m_disarm(struct member *m) DS_HIDDEN;
/* The bell is readable. True: it is read, and epi_pass_on is to be called; false: a sleeper will read it that is no instance
 * of this process. */
bool m_rung(struct member *m) DS_HIDDEN;
void m_entry(struct member *m) DS_HIDDEN;    /* as an ADD or MOD of the program leaves it */
int m_modify(struct member *m) DS_HIDDEN;    /* has the kernel's entry look anew, for all that was asked; as epoll_ctl */
void m_unlink(struct member *m) DS_HIDDEN;   /* takes the kernel's entries out */
void m_bell_out(struct member *m) DS_HIDDEN; /* the bell's only */
void m_dead_bell(struct member *m) DS_HIDDEN; /* if it is at its end */
/* Nothing to tell, at a glance: no look is needed. */
bool m_quiet(const struct member *m) DS_HIDDEN;
/* What is to be told now: m->got, which is returned. Changes nothing that counts until m_told. */
uint32_t m_look(struct member *m) DS_HIDDEN;
void m_told(struct member *m, uint64_t now) DS_HIDDEN;
struct member *m_by_tag(uint64_t data) DS_HIDDEN; /* NULL: not a tag; else the caller checks e and tag */
uint64_t tag_of_wakefd(void) DS_HIDDEN;
bool tag_is_wakefd(uint64_t data) DS_HIDDEN;
bool tag_is_ours(uint64_t data) DS_HIDDEN;

void epi_wake(struct epi *e) DS_HIDDEN;
void epi_clear_wake(struct epi *e) DS_HIDDEN;
/* Not every ring is heard in e, so one of its sleepers has to look now and then. */
static inline bool epi_deaf(const struct epi *e) { return e->followers > 0 || e->nobell; }
/* Something may be ready: tells those who sleep in e or on it. */
void epi_news(struct epi *e) DS_HIDDEN;
/* Wakes a sleeper, if one has to look now and then and none does. */
void epi_nap(struct epi *e) DS_HIDDEN;
/* Arms every active member; true if one of them has something to tell meanwhile. */
bool epi_arm_all(struct epi *e) DS_HIDDEN;
/* A sleep is over: those that are not idle need no bell for now. */
void epi_disarm_all(struct epi *e) DS_HIDDEN;

/* ---- epready.c ------------------------------------------------------------ */

/* A call of epoll_wait. */
struct waiter {
	struct epi *e;
	int epfd;
	struct epoll_event *ev;
	int max;
	const struct timespec *timeout; /* NULL: for ever */
	const sigset_t *mask;		/* or NULL */
	bool asleep, napping;
	int cleanup; /* of ds_cleanup_push */
};

/* The kernel has written n events to ev, when it was asked at a time of ds_ticks; n -1: it was not asked. */
struct answer {
	int n;
	uint64_t at;
	bool slept; /* with all bells armed */
};

/* One round of looking: writes what is to be told to w->ev, at most w->max events, in the order in which it came, with what the
 * kernel has told already; returns their number. The kernel is asked too if it may say of something earlier, or, if nothing
 * was found, if ask. Takes e's lock. first: the first look of a call (the others do not count as in vain). */
int epi_round(const struct waiter *w, struct answer a, bool ask, bool first) DS_HIDDEN;

#endif
