/* One TCP connection of the program, and what of it is direct.
 *
 *   program ─▶ hooks/ ─▶ fd/ ─▶ conn/ ─┬▶ shadow.c  the program's TCP socket
 *                                      ├▶ segment/  the two directions in shared memory
 *                                      └▶ broker.c  offers, claims, the page
 *
 * A struct ds_sock is this process's handle of a connection, whatever number of
 * descriptors it has; what processes share after fork lies behind it (segment/arena.h).
 * Every call that may touch the shadow takes the descriptor by which the program
 * named it: any descriptor of the connection will do.
 *
 * All calls keep errno unless they fail, never allocate by malloc, and may be
 * made by any thread. Calls that sleep are cancellation points and end with
 * EINTR, or go on, as recv(2) and send(2) do under SA_RESTART.
 */
#ifndef DS_SOCK_H
#define DS_SOCK_H

#include "segment/segment.h"

#include <stdint.h>

struct ds_sock;

/* ---- life ---------------------------------------------------------------- */

/* The connection of fd, whose connect has completed (returned 0, or POLLOUT and
 * SO_ERROR 0), or that accept returned. NULL: it stays plain, there is nothing to
 * do for it ever (not TCP, no broker). Neither waits. */
struct ds_sock *ds_client(int fd) DS_HIDDEN;
struct ds_sock *ds_server(int fd) DS_HIDDEN;

/* The same of a connection that the program has got by exec from one that had it for itself, and ds_bequeath said
 * true. side: 0 connected, 1 accepted. */
struct ds_sock *ds_heir(int fd, int side) DS_HIDDEN;

/* True once s is the shadow for good (a rule, no listener at the peer, ...): the real calls
 * will do; ds_close is still wanted, for the statistics. May become true, never false. */
bool ds_plain(const struct ds_sock *s) DS_HIDDEN;

/* fd began to listen (false: it is none of ours), or will stop to. */
bool ds_listen(int fd) DS_HIDDEN;
void ds_unlisten(int fd) DS_HIDDEN;

/* The last descriptor of this process, fd, is about to be closed by the caller.
 * s is not to be used afterwards; no other call on it may be under way. */
void ds_close(struct ds_sock *s, int fd) DS_HIDDEN;

/* For the hooks' use: a pointer of theirs that goes with s (a copy after fork),
 * NULL at first. */
void **ds_user(struct ds_sock *s) DS_HIDDEN;

/* ---- bytes --------------------------------------------------------------- */

/* recvmsg and sendmsg without address and control data: bytes moved, or -1 and
 * errno (with SIGPIPE, unless MSG_NOSIGNAL). Flags as theirs; MSG_ERRQUEUE and
 * control data are for the real call on the shadow; for MSG_OOB and
 * SO_OOBINLINE call ds_freeze_demote first and then the real one. */
ssize_t ds_recv(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;
ssize_t ds_send(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;

/* ds_send with MSG_ZEROCOPY in flags. Is a completion of one to be told, for which recvmsg looks into the error queue
 * (POLLERR)? ds_zerocopy_read takes one, if the kernel's queue is empty, into m, which can be written; NULL: nowhere. */
ssize_t ds_send_zerocopy(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;
bool ds_zerocopy_done(const struct ds_sock *s) DS_HIDDEN;
bool ds_zerocopy_read(struct ds_sock *s, int fd, struct msghdr *m, int flags) DS_HIDDEN;

/* True if every byte still goes over the shadow and s holds none: a call that
 * the core has no form of (splice, sendfile) may go to the real function. The
 * caller calls ds_tick before and ds_moved after it. */
bool ds_on_shadow_rx(struct ds_sock *s) DS_HIDDEN;
bool ds_on_shadow_tx(struct ds_sock *s) DS_HIDDEN;
void ds_moved(struct ds_sock *s, size_t sent, size_t received) DS_HIDDEN;

/* FIONREAD and SIOCOUTQ, shadow included; -1 and errno. */
int ds_fionread(struct ds_sock *s, int fd, int *n) DS_HIDDEN;
int ds_outq(struct ds_sock *s, int fd, int *n) DS_HIDDEN;

int ds_shutdown(struct ds_sock *s, int fd, int how) DS_HIDDEN;

/* O_NONBLOCK was set or cleared (fcntl, FIONBIO). */
void ds_flags_changed(struct ds_sock *s) DS_HIDDEN;

/* Gives fd, a TCP connection that was made or is being made, the class that the rules say (SPEC 8), if the program has
 * given it none: the DSCP of its packets. side is 0 for the end that called connect; server, of len bytes, is the
 * address of the server's end, NULL: that of fd. Keeps errno. */
void ds_classify(int fd, int side, const struct sockaddr *server, socklen_t len) DS_HIDDEN;

/* The DSCP of fd was set. Keeps errno. */
void ds_class_changed(struct ds_sock *s, int fd) DS_HIDDEN;

/* SO_RCVLOWAT was set. */
void ds_options_changed(struct ds_sock *s, int fd) DS_HIDDEN;

/* Takes the set-up of s further: offer, claim, attach, promote. ds_recv, ds_send
 * and ds_ready do it themselves. A load or two when there is nothing to do. */
void ds_tick(struct ds_sock *s, int fd) DS_HIDDEN;

/* A jump out of a signal handler has left a call of this thread on s: its locks are given up. */
void ds_jumped(struct ds_sock *s) DS_HIDDEN;

/* ---- readiness ----------------------------------------------------------- */

struct ds_ready {
	unsigned now;    /* POLLIN POLLOUT POLLRDHUP POLLHUP POLLERR that hold now */
	unsigned kernel; /* of the events asked for, those that the shadow decides:
	                    poll the shadow for them, as the program would. POLLHUP
	                    and POLLERR here: if the kernel reports them, they count. */
};

/* What the program should see of events (POLLIN | POLLOUT | POLLRDHUP, ...). */
struct ds_ready ds_ready(struct ds_sock *s, int fd, unsigned events) DS_HIDDEN;

/* A number that changes when something arrives over the segment that is an edge for edge-triggered epoll: bytes, below bit
 * DS_EDGE_ENDS; an end, from there on. */
enum { DS_EDGE_ENDS = 56 };
uint64_t ds_edges(struct ds_sock *s) DS_HIDDEN;

/* When the first of the bytes that came over the segment and are neither read nor among those told (an earlier answer of
 * ds_edges, 0: none) was sent, by ds_ticks; 0: nobody knows. The peer's word: for ordering only. */
uint64_t ds_arrival(struct ds_sock *s, uint64_t told) DS_HIDDEN;

/* A send on TCP by the kernel alone begins, which ds_send does not see: for ds_sent_before at its server. */
void ds_sent_tcp(struct ds_sock *s) DS_HIDDEN;

/* Of two accepted connections: when the client sent on tcp what is unread, by ds_ticks, if it did that before its last send
 * on direct. DS_AFTER: it did not. DS_UNSAID: nobody knows, or one is NULL, as it is being made. Its word: for ordering only.
 * Never in the future. */
enum { DS_UNSAID = 0 };
#define DS_AFTER UINT64_MAX
uint64_t ds_sent_before(struct ds_sock *direct, const struct ds_sock *tcp) DS_HIDDEN;

/* Has the peer rung a bell, of whatever connection, since this was asked last, and before it sent on s? Then the kernel knows. */
bool ds_has_rung(struct ds_sock *s) DS_HIDDEN;

/* True if s goes direct both ways, and nothing has come that ds_ready would tell of but room to send. Takes no lock. */
bool ds_quiet(struct ds_sock *s) DS_HIDDEN;

/* 1: what is sent goes direct, 2: what is received comes direct, 3: both, 0: neither (any more, or yet). */
int ds_direct(struct ds_sock *s) DS_HIDDEN;

/* Sleeping until s is ready, among other things:
 *
 *	ds_wait_begin(s)                 shadow only, or bell too? see below
 *	ds_arm(s, events) for each; ds_barrier() once; ds_ready again for each
 *	real poll over: the shadow for .kernel; ds_bell(s), ds_wakefd(s) for POLLIN
 *	if the doorbell or the wakefd is readable or hung up: ds_rung(s)
 *	ds_disarm(s, events); ds_wait_end(s); ds_ready again
 *
 * Between ds_wait_begin and ds_wait_end no bell appears or goes: a set-up that would
 * need one waits, and writes to the wakefd (an eventfd; -1 if there is none) so that
 * the sleeper comes round. For a poller that can add a bell while it sleeps
 * (epoll) ds_wait_begin is not needed: see ds_notices.
 *
 * ds_arm returns false if another sleeper of s has the bell: then sleep without it,
 * and no longer than DS_FOLLOW_MS before looking again. Only who was told true calls
 * ds_disarm with had = true. A poller that was told false calls ds_follow: if that is true, it is a sleeper of this
 * process, which writes to the wakefd when it wakes, and DS_LEADER_MS will do; ds_follow_end when the sleep is over. */
enum { DS_FOLLOW_MS = 5, DS_LEADER_MS = 100 };
bool ds_follow(struct ds_sock *s) DS_HIDDEN;
void ds_follow_end(struct ds_sock *s) DS_HIDDEN;
void ds_wait_begin(struct ds_sock *s) DS_HIDDEN;
void ds_wait_end(struct ds_sock *s) DS_HIDDEN;

/* The same for a call of the kernel's on the shadow, which ends with the block where DS_USE stands: also if the thread is
 * cancelled in it, or a signal handler leaves it by a jump. ds_use_end before that: the call is over. */
struct ds_use {
	struct ds_sock *s;
	int slot;
};
void ds_use_begin(struct ds_use *u, struct ds_sock *s) DS_HIDDEN;
void ds_use_end(struct ds_use *u) DS_HIDDEN;
#define DS_USE(name) __attribute__((cleanup(ds_use_end))) struct ds_use name = {NULL, -1}

bool ds_arm(struct ds_sock *s, unsigned events) DS_HIDDEN;
void ds_barrier(void) DS_HIDDEN;
void ds_rung(struct ds_sock *s) DS_HIDDEN;
void ds_disarm(struct ds_sock *s, bool had) DS_HIDDEN;

/* The same for the epoll sets of the process, which may be armed without a thread asleep; s has a bell. Their name is the
 * process's number plus a bit above DS_TID_MASK. ds_arm_sets: false: a sleeper of another process has the bell, and theirs may
 * be rung for nothing. ds_rung_sets: their bell is readable. True: it is read, and the caller tells all other sets that hold
 * s. False: who has it will read it. Both keep no more than a lock of s, so the caller may hold its own. */
enum { DS_TID_MASK = (1 << 22) - 1 };
bool ds_arm_sets(struct ds_sock *s, unsigned events, uint32_t name) DS_HIDDEN;
void ds_disarm_sets(struct ds_sock *s, bool had) DS_HIDDEN;
bool ds_rung_sets(struct ds_sock *s, uint32_t name) DS_HIDDEN;
/* Does the leader live no more? Then nobody leads: true. Asks the kernel. */
bool ds_leader_check(struct ds_sock *s) DS_HIDDEN;
int ds_bell(struct ds_sock *s) DS_HIDDEN; /* -1: none (yet) */
int ds_wakefd(struct ds_sock *s) DS_HIDDEN;
void ds_wakefd_make(struct ds_sock *s) DS_HIDDEN; /* has s a wakefd, from now on, if there can be one */

/* What the core tells the layer above. */
struct ds_notices {
	/* s has got a bell, and no byte can have come over the segment yet. Put it into the epoll sets that hold s,
	 * and arm for them if a thread sleeps there. Called by the thread that made the offer or attached, inside of
	 * ds_tick, with the lock of setup: it shall not call back into ds_tick, ds_recv, ds_send. */
	void (*bell)(struct ds_sock *s);
	/* A thread has read the bell, for which epoll sets of the process are armed too: all of them look again. Called by
	 * ds_rung, with no lock of the core's. */
	void (*rung)(struct ds_sock *s);
};
/* Once, before the first connection; without it nobody is told. */
void ds_tell(const struct ds_notices *to) DS_HIDDEN;

/* True if fd is one of the library's own (bell, broker, statistics): the program's
 * close, dup2 and close_range shall not touch it. */
bool ds_own_fd(int fd) DS_HIDDEN;

/* Looking before sleeping. ds_spin_begin after the first look was in vain; as long as
 * ds_spin_more is true, look again. ds_spin_end once: with true when a look has found something,
 * else with false after the sleep. s may be NULL (many sockets): then it adapts by thread. */
struct ds_spinner {
	unsigned budget, vain, rest; /* ns; spins in vain in a row; sleeps to go without spinning */
	unsigned pause, again;	     /* sleeps to go without yielding; log2 of how many there were */
	int sum;		     /* us that yields have saved, since it said something last */
	unsigned nap;		     /* us that sleeps take */
};
struct ds_spin {
	unsigned long long start, until, next, end, budget; /* in ticks of the time stamp counter */
	struct ds_spinner *of;
	unsigned rounds, yields;
	bool polite;  /* yields are allowed */
	bool crowded; /* others want the CPU */
	bool asked;   /* they did not, when it was offered */
	unsigned late; /* us that they kept it too long */
};
void ds_spin_begin(struct ds_spin *p, struct ds_sock *s) DS_HIDDEN;
bool ds_spin_more(struct ds_spin *p) DS_HIDDEN;
void ds_spin_end(struct ds_spin *p, struct ds_sock *s, bool found) DS_HIDDEN;

/* ---- giving up, fork, exec ------------------------------------------------ */

/* Both directions go on on the shadow from here, for good. For exec of a program
 * without the library, SCM_RIGHTS, MSG_OOB, io_uring. Does not wait for the peer. */
void ds_freeze_demote(struct ds_sock *s, int fd) DS_HIDDEN;

/* What lies unread in the segment. It may ask the kernel; takes the lock of rx. */
enum ds_unread {
	DS_UNREAD_NONE,	 /* or there is no segment */
	DS_UNREAD_SOME,	 /* and the sender can write it to the shadow */
	DS_UNREAD_ENDED, /* and it cannot any more */
};
enum ds_unread ds_unread(struct ds_sock *s, int fd) DS_HIDDEN;
/* Has s a segment, and is its bell open? A child of vfork may have closed what is the parent's. */
bool ds_bell_open(struct ds_sock *s) DS_HIDDEN;
/* Does the peer hear its bell? One that has armed it, and reads it, is inside of the library, and looks at what
 * we say there before it does anything else. One that computes, sleeps elsewhere or is stopped does not. Asked again and
 * again, with *rung false at first. */
bool ds_hears(struct ds_sock *s, bool *rung) DS_HIDDEN;
/* Has no other process the connection open? s has a segment. */
bool ds_only_here(const struct ds_sock *s) DS_HIDDEN;
/* Can a program that this process executes go on with s as it is (ds_heir)? It has no segment, and asks for none; no
 * other process has it. *side is what ds_heir wants. No lock: what other threads do meanwhile, exec ends. */
bool ds_bequeath(const struct ds_sock *s, int *side) DS_HIDDEN;
/* Is s without a segment? Then it gets none as long as one of its descriptors is a standard stream: on. */
bool ds_stream(struct ds_sock *s, bool on) DS_HIDDEN;
bool ds_is_stream(const struct ds_sock *s) DS_HIDDEN;
/* This process will not use s any more, of which nothing is direct, but may have it open until it ends: those that share
 * it need not wait. Memory only; any process of one thread. */
void ds_leave(struct ds_sock *s) DS_HIDDEN;
/* Is there anybody who wants to know? */
bool ds_leaves(const struct ds_sock *s) DS_HIDDEN;
/* The library's descriptors of s, of which some may be -1. */
void ds_own_fds(const struct ds_sock *s, int fds[2]) DS_HIDDEN;

/* Around fork: prepare before; then in the parent parent(pid), in the child child().
 * Not for vfork. All sockets of the process are shared afterwards; the child
 * closes what it does not want by ds_close. */
void ds_fork_prepare(void) DS_HIDDEN;
void ds_fork_parent(pid_t pid) DS_HIDDEN;
void ds_fork_child(void) DS_HIDDEN;

/* The process ends without closing (exit, _exit): say goodbye as the kernel's close of
 * s would. Before an exec that will close fd (FD_CLOEXEC) in a child of fork call ds_close instead. */
void ds_exit_one(struct ds_sock *s, int fd) DS_HIDDEN;

#endif
