/* What the files of epoll share: epoll.c, epctl.c, epmember.c, epactive.c, eplook.c, epready.c,
 * eporder.c, epwait.c and epdgram.c. */
#ifndef DS_EPOLL_INT_H
#define DS_EPOLL_INT_H

#include "fd/epoll.h"

/* member.before if it has no place among the foreign events of a round. */
enum { NOWHERE = -1 };

struct member {
	struct epi *e;	      /* NULL: free. Atomic: m_by_tag reads it without the lock */
	struct conn *c;
	int fd;		      /* by which the program added it */
	uint32_t events;      /* as the program asked, flags included */
	uint64_t data;	      /* the program's */
	uint64_t tag;	      /* the shadow's entry; the bell's is tag | 1 */
	int before;	      /* this round: it came before the foreign event of that index; or NOWHERE */
	int bell;	      /* the bell that is in the instance, or -1 */
	uint64_t since;	      /* when it was last reported, or added: nothing counts as older */
	/* From here to the lists all is 0 in a new one. */
	uint32_t kevents;     /* what the kernel was last asked for, of the shadow */
	uint32_t kseen;	      /* EPOLLHUP and EPOLLERR that the kernel has reported */
	uint32_t kpend;	      /* what it has reported of the shadow, and the program has not been told */
	uint32_t kleft;	      /* what of that stays after `got` is reported: see look_edge */
	uint64_t rx, tx;      /* edges reported: ds_edges, conn.blocked */
	uint64_t rings_seen;  /* of ds_has_rung */
	uint64_t heard;	      /* this round's event of the shadow counts as of then; 0: none */
	bool exclusive;	      /* EPOLLEXCLUSIVE: the program cannot modify it */
	bool tagged;	      /* the shadow's entry carries the tag */
	bool joined;	      /* the conn has, or had, a bell: the core is asked */
	bool both_direct;	      /* it was direct both ways when last looked at */
	bool sends;	      /* it sent direct then */
	bool stranded;	      /* it ran out of room in the segment, and sends on the shadow now */
	bool disabled;	      /* EPOLLONESHOT has fired */
	bool deleted;	      /* by the program; the kernel's entries stay for when it comes back: ctl_del */
	bool orphan;	     /* the program has closed fd, and has the socket by another number: see m_orphan */
	bool unlinked;	      /* deleted, and the kernel's entries too */
	bool fresh;	      /* report once what holds now (EPOLLET) */
	bool active;	      /* in the list of active ones */
	bool listed;	      /* in the list of a round */
	bool armed, had;      /* ds_arm was called; what it returned */
	bool follows;	      /* a sleeper has to look now and then: another process has the bell, or ds_unheard */
	bool rings;	      /* its bell may have been rung since it was read */
	bool read;	      /* it was read here, which epi_pass_on tells the conn's other members */
	/* And these are set before they are read. */
	uint32_t got;	      /* what m_look has found */
	unsigned vain;	      /* calls that found nothing since it became active */
	unsigned sleeps;      /* sleeps since then */
	uint64_t next_rx, next_tx; /* what rx and tx become when `got` is reported */
	uint64_t key;	      /* when that came, by ds_ticks */
	struct member *anext, *aprev; /* active list */
	struct member *rnext;	      /* list of a round */
	struct member *cnext;	      /* of the conn, under ep_lock */
	struct member *enext, *eprev; /* of the instance */
};

struct epi {
	struct ds_lock lock;
	int epfd;	  /* one of its descriptors: epi_fd */
	int closefd;	  /* if calls outlive the last of them: a copy, or NO_COPY; else -1 */
	int nfds;
	int users;	  /* calls under way, and one for the descriptors */
	uint32_t owner;	  /* the name of the process that made it */
	int sleepers;	  /* threads in the kernel's epoll_wait, */
	int naps;	  /* of which these sleep at most DS_FOLLOW_MS */
	int joined;	  /* members that have joined, */
	int nactive;	  /* in the active list */
	int indirect;	  /* members not known to be direct both ways */
	int followers;	  /* armed members that follow */
	int reads;	  /* members with `read` */
	bool nested;	  /* in another set, */
	bool holds;	  /* with another instance in it */
	bool nobell;	  /* a bell could not be added: look now and then */
	bool woken;
	bool unsettled;	  /* since it has a direct member, others may be uncounted, and so have no place in the order */
	bool others;	  /* the kernel reported more than bells when it was asked last */
	int wakefd;	  /* eventfd, -1 until needed */
	unsigned skipped; /* calls that found something since the kernel was asked last */
	uint64_t asked;	  /* when that was, by ds_ticks */
	struct member *all, *active_head, *active_tail;
	uint32_t dgrams;	  /* UDP sockets in it (dgset.c), */
	uint32_t asleep;  /* threads that wait for those, */
	struct ds_dg_set *live, *looked; /* those that may have flows that are awake: new ones, and others; */
	uint32_t once;	  /* those with EPOLLONESHOT; */
	uint32_t kicks;	  /* and times that they were told to look again */
	uint32_t next;
};

extern struct ds_lock ep_lock DS_HIDDEN;

/* A thread that holds one of these locks may take it again (ds_own_again): conn/ may report a bell
 * at any time. So in a process of one thread, where only this thread could hold it, it is a
 * critical section. The word says how it was taken: after a fork the child has one thread. */
static inline void lk_lock(struct ds_lock *l)
{
	if (ds_one_thread())
		ds_critical_begin();
	else
		ds_own_again(l);
}

static inline __attribute__((always_inline)) void lk_unlock(struct ds_lock *l)
{
	if (__atomic_load_n(&l->word, __ATOMIC_RELAXED) == 0)
		ds_critical_end();
	else
		ds_own_unlock(l);
}

/* The instance of epfd, with a reference that epi_put drops; NULL: none of ours. Takes ep_lock at
 * most. */
void epi_unused(struct epi *e) DS_HIDDEN; /* the last reference is gone */
static inline void epi_put(struct epi *e)
{
	if (__builtin_expect(ds_add_shared(&e->users, -1) == 0, 0))
		epi_unused(e);
}
static inline struct epi *epi_get(int epfd)
{
	for (uintptr_t w = fd_word(epfd);; w = fd_settled(epfd)) {
		struct epi *e = word_epi(w);

		if (e && word_held(epfd, w, &e->users))
			return e;
		if (e)
			epi_put(e);
		else if (w != FD_CHANGING)
			return NULL;
	}
}

/* One of its descriptors. */
static inline int epi_fd(const struct epi *e) { return __atomic_load_n(&e->epfd, __ATOMIC_RELAXED); }

/* As fd, for a call on e that has slept: another descriptor of it if fd was closed meanwhile. */
int epi_still_open(struct epi *e, int fd) DS_HIDDEN;
static inline int epi_still(struct epi *e, int fd)
{
	return __builtin_expect(word_epi(fd_word(fd)) == e, 1) ? fd : epi_still_open(e, fd);
}

/* An instance for epfd; NULL: no memory, or too many. With ep_lock. */
struct epi *epi_make(int epfd) DS_HIDDEN;

/* Calls epi_settle for all instances that are in other sets. No lock is held. */
void epi_settle_nested(bool rung) DS_HIDDEN;

/* After m_rung has read bells in e: has the other instances that hold their conns look again. e's
 * lock is not held. */
void epi_pass_on(struct epi *e) DS_HIDDEN;

bool m_init(void) DS_HIDDEN;
void m_fork_child(void) DS_HIDDEN;

/* c has got a bell; a call begins on it while a member is armed; fd, one of its descriptors, is
 * about to be closed; its last one is, or c goes; c stays on the shadow, and all calls are the
 * kernel's. Take both locks. */
void m_bell(struct conn *c) DS_HIDDEN;
void m_active(struct conn *c) DS_HIDDEN;
void m_orphan(struct conn *c, int fd) DS_HIDDEN;
void m_forget(struct conn *c) DS_HIDDEN;
void m_native(struct conn *c) DS_HIDDEN;

/* The member of c in e by fd, or NULL. With ep_lock. */
static inline struct member *m_find(struct conn *c, struct epi *e, int fd)
{
	struct member *m = c->members;

	while (m && (m->e != e || m->fd != fd))
		m = m->cnext;
	return m;
}

/* With ep_lock and e's lock. m_new: a member that the kernel does not know yet (NULL: no memory).
 * m_free: the kernel's entries are gone. m_attach: the conn has got a bell. */
struct member *m_new(struct conn *c, struct epi *e, int fd, const struct epoll_event *ev) DS_HIDDEN;
void m_free(struct member *m) DS_HIDDEN;
void m_attach(struct member *m) DS_HIDDEN;

/* All of these with e's lock: */
void m_activate(struct member *m) DS_HIDDEN;
void m_passive(struct member *m) DS_HIDDEN;  /* off the active list */
/* m is reported: it goes to the end of the active list, before next, which was reported after it
 * (NULL: none was), or off the list if it is not joined. Returns the next for one that was reported
 * before m. */
struct member *m_last(struct member *m, struct member *next) DS_HIDDEN;
void m_arm(struct member *m) DS_HIDDEN;	     /* barrier and second look are the caller's */
void m_disarm(struct member *m) DS_HIDDEN;
/* The bell is readable. True: it has been read, and the caller must call epi_pass_on; false:
 * another sleeper will read it. */
bool m_rung(struct member *m) DS_HIDDEN;
void m_entry(struct member *m) DS_HIDDEN;    /* begins anew, after an ADD or MOD of the program */
void m_untag(struct member *m) DS_HIDDEN;    /* makes the shadow's entry the program's own */
int m_modify(struct member *m) DS_HIDDEN;    /* sets that entry to all that the program asked for; as epoll_ctl */
void m_unlink(struct member *m) DS_HIDDEN;   /* removes the kernel's entries */
void m_bell_out(struct member *m) DS_HIDDEN; /* removes the bell's */
void m_dead_bell(struct member *m) DS_HIDDEN; /* the same, if the peer has closed it */
/* True if a glance shows that there is nothing to report, so that m_look is not needed. */
bool m_quiet(const struct member *m) DS_HIDDEN;
/* Sets m->got to what to report now, and returns it. Nothing is taken until m_told. */
uint32_t m_look(struct member *m) DS_HIDDEN;
void m_told(struct member *m, uint64_t now) DS_HIDDEN;

/* A tag, from the top: family (24 bits: the same in all processes of one fork tree), process (11),
 * generation of the member (8), its index (20), bell (1). So an event of a member is not taken for
 * one of a later member. Index 0 is the wakefd. */
enum { INDEX_BITS = 20, INDEX_SHIFT = 1, GEN_SHIFT = 21, GEN_BITS = 8, PROCESS_SHIFT = 29, FAMILY_SHIFT = 40 };
extern uint64_t ep_family DS_HIDDEN;	   /* 0: no tag was ever made */
extern struct member *ep_place DS_HIDDEN; /* of all members, ep_members of which were ever used */
static inline bool tag_is_ours(uint64_t data) { return data >> FAMILY_SHIFT == ep_family && ep_family; }
static inline bool tag_is_wakefd(uint64_t data) { return (data & ((1ull << GEN_SHIFT) - 1)) == 0; }
/* NULL: not a tag; else the caller checks e and tag. */
static inline struct member *m_by_tag(uint64_t data)
{
	uint32_t i = (uint32_t)(data >> INDEX_SHIFT) & ((1u << INDEX_BITS) - 1);

	return tag_is_ours(data) && i <= __atomic_load_n(&ep_members, __ATOMIC_RELAXED) ? &ep_place[i] : NULL;
}
uint64_t tag_of_wakefd(void) DS_HIDDEN;

void epi_wake(struct epi *e) DS_HIDDEN;
void epi_clear_wake(struct epi *e) DS_HIDDEN;
/* The library's descriptor from has the number to, and still the other: if it is in e, e takes it
 * by the new one. With ep_lock. */
void epi_moved(struct epi *e, int from, int to) DS_HIDDEN;
/* True if e does not get every ring, so that one of its sleepers has to look now and then. */
static inline bool epi_follows(const struct epi *e) { return e->followers > 0 || e->nobell; }
/* Something may be ready: wakes the threads that sleep in e or in a set with e. */
void epi_news(struct epi *e) DS_HIDDEN;
/* Wakes a sleeper, if one has to look now and then and none does. */
void epi_nap(struct epi *e) DS_HIDDEN;
/* Arms every active member; true if one of them has something to tell meanwhile. */
bool epi_arm_all(struct epi *e) DS_HIDDEN;
/* A sleep is over: members that are not idle need no bell for now. */
void epi_disarm_all(struct epi *e) DS_HIDDEN;

/* ---- epready.c ------------------------------------------------------------ */

/* A call of epoll_wait. */
struct waiter {
	struct epi *e;
	int epfd;
	struct epoll_event *ev;
	int max;
	const struct timespec *timeout; /* NULL: for ever */
	struct timespec deadline;	/* tv_nsec -1: the clock has not been read yet */
	const sigset_t *mask;		/* or NULL */
	bool asleep, napping;
	bool rests; /* counted in e->asleep */
	int cleanup; /* of ds_cleanup_push */
	uint32_t kicks; /* if it is not e's any more, the call begins anew */
};

/* The caller begins, or ends, to be counted as one that waits for UDP sockets. */
void waiter_rest(struct waiter *w, bool rests) DS_HIDDEN;

/* What the kernel is to be asked by. */
static inline int waiter_fd(const struct waiter *w) { return w->e ? epi_still(w->e, w->epfd) : w->epfd; }

/* The kernel's answer: n events in ev. n -1: it was not asked. */
struct answer {
	int n;
	uint64_t at; /* when it was asked, by ds_ticks */
	bool slept;  /* it woke a sleeper that had armed all bells */
};

/* One round of looking: writes what is ready to w->ev, at most w->max events in the order in which
 * they came, together with the kernel's answer a, and returns their number. It asks the kernel too
 * if that may know of something earlier or, with ask, if nothing was found. first: the first look
 * of a call (further ones do not count as such). Takes e's lock. */
int epi_round(const struct waiter *w, struct answer a, bool ask, bool first) DS_HIDDEN;

/* The same where nothing is direct and the kernel was asked: its answer, in its order, with the
 * program's data for tags. -1: it takes a round. Takes e's lock. */
int epi_plain(const struct waiter *w, struct answer a) DS_HIDDEN;

/* As ep_wait, where UDP sockets are in the set; rest waits for all that is no flow of theirs, as
 * epoll_wait. */
typedef int ep_rest(struct waiter *w, const struct timespec *timeout);
int ep_wait_dgrams(struct waiter *w, ep_rest *rest) DS_HIDDEN;

/* ---- UDP sockets (dgset.c) ------------------------------------------------- */

/* After epoll_ctl of fd, the UDP socket d, has succeeded. */
void dgset_ctl(struct epi *e, int op, struct ds_dgram *d, int fd, const struct epoll_event *ev) DS_HIDDEN;
/* d is closed; fd is, by which it may be in sets, and it is not; e is. */
void dgset_forget(struct ds_dgram *d) DS_HIDDEN;
void dgset_renumbered(struct ds_dgram *d, int fd) DS_HIDDEN;
void dgset_gone(struct epi *e) DS_HIDDEN;
/* e is in another set, or is to be: its UDP sockets are the kernel's from now on. */
void dgset_native(struct epi *e) DS_HIDDEN;
/* The sets of d that threads wait in, each with a reference: how many. */
int dgset_waited(struct ds_dgram *d, struct epi *waited[DS_DG_SETS]) DS_HIDDEN;
/* Has the threads that wait in e look again. Takes e's lock. */
void dgset_kick(struct epi *e) DS_HIDDEN;
/* Writes an event for each UDP socket of e that has something to read through its flows: how
 * many. */
int dgset_collect(struct epi *e, int epfd, struct epoll_event *ev, int max) DS_HIDDEN;
/* The kernel has reported n events at ev, at has of which those before are dgset_collect's: one for
 * each socket stays. Returns how many there are. */
int dgset_merge(struct epi *e, struct epoll_event *ev, int at, int n) DS_HIDDEN;
/* Are there flows that are awake, to look at for a while? */
bool dgset_awake(struct epi *e) DS_HIDDEN;
/* Arms them all, for a caller whom e->asleep counts: may it sleep in the kernel? DGSET_READY: there
 * is something to read. DGSET_LOOK: a record waits for a datagram that the kernel does not have
 * yet: the caller looks again after a moment. If another thread takes what the kernel has,
 * it kicks the set. */
enum { DGSET_SLEEP, DGSET_READY, DGSET_LOOK };
int dgset_rest(struct epi *e) DS_HIDDEN;
/* With ep_lock. A child has no flows: no set has to look. */
void dgset_fork_prepare(void) DS_HIDDEN;
void dgset_fork_parent(void) DS_HIDDEN;
void dgset_fork_child(void) DS_HIDDEN;

#endif
