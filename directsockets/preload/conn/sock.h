/* One TCP connection of the program, and the direct socket that belongs to it.
 *
 *   program ─▶ hooks/ ─▶ fd/ ─▶ conn/ ─┬▶ shadow.c  the program's TCP socket
 *                                      ├▶ segment/  the two directions in shared memory
 *                                      └▶ broker.c  offers, claims, the page
 *
 * A struct ds_sock is this process's handle of a connection, whatever number of
 * descriptors it has; what processes share after fork follows it (segment/arena.h).
 * Every call that may touch the shadow takes the descriptor by which the program
 * named it: any descriptor of the connection will do.
 *
 * All calls keep errno unless they fail, never allocate by malloc, and may be
 * made by any thread. Calls that sleep are cancellation points and end with
 * EINTR, or go on, as recv(2) and send(2) do under SA_RESTART.
 */
#ifndef DS_SOCK_H
#define DS_SOCK_H

#include "conn/life.h"

#include <stdint.h>

struct ds_sock;

/* ---- life ---------------------------------------------------------------- */

/* The handle of a connection that was inherited by exec, from a program that was its only user and
 * for which ds_may_inherit returned true. side: 0 connected, 1 accepted. */
struct ds_sock *ds_inherited(int fd, int side) DS_HIDDEN;

/* True once s is on the shadow for good (a rule, no listener at the peer, ...): the real calls will
 * do, but ds_close is still needed for the statistics. May become true, never false again. */
bool ds_plain(const struct ds_sock *s) DS_HIDDEN;

/* Connects to the broker now, unless there is none: the process is about to lose sight of the
 * broker's socket (chroot), or to accept. */
void ds_connect_broker(void) DS_HIDDEN;
/* Shows the broker the statistics, and keeps no descriptor, as a program that makes calls which do
 * not come here may close any number. Not if there are connections already. */
void ds_tell_broker(void) DS_HIDDEN;

/* Tells an agent of this host, if there is one, that the process is there, unless its namespace has
 * a broker: the agent then makes one (SPEC 6). It waits for nobody. */
void ds_knock(void) DS_HIDDEN;

/* Keeps the variables that the library reads, before the program can change them. */
void ds_env_keep(void) DS_HIDDEN;

/* Does the variable say 0, or has nobody a say (set-user-ID)? */
bool ds_env_off(const char *name) DS_HIDDEN;

/* What becomes of a system call of the program that no jump replaces. */
enum ds_miss {
	DS_MISS_STAYS,	/* for it, all sockets of the process stay the kernel's */
	DS_MISS_PASSES, /* it goes past this library, which takes over the others */
	DS_MISSES,
};

/* Notes one for the statistics (SPEC 6.3): in file ("": the program), at this address there. */
void ds_missed(enum ds_miss miss, const char *file, uint64_t at) DS_HIDDEN;

/* Is the program run to have its connections explained (EXNET_EXPLAIN)? */
bool ds_explains(void) DS_HIDDEN;

/* fd has begun to listen (false: it is not ours), or is about to stop. */
bool ds_listen(int fd) DS_HIDDEN;
void ds_unlisten(int fd) DS_HIDDEN;

/* The life of the connection s. */
struct ds_life *ds_life_of(const struct ds_sock *s) DS_HIDDEN;

/* The caller is about to close fd, this process's last descriptor of s. s must not be used
 * afterwards, and no other call on it may be under way. */
void ds_close(struct ds_sock *s, int fd) DS_HIDDEN;

/* ---- bytes --------------------------------------------------------------- */

/* recvmsg and sendmsg without address and control data: bytes moved, or -1 and
 * errno (with SIGPIPE, unless MSG_NOSIGNAL). Flags as theirs; MSG_ERRQUEUE,
 * MSG_OOB and control data are for the real call on the shadow; before it sends
 * the latter two call ds_send_back. */
ssize_t ds_recv(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;
ssize_t ds_send(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;

/* Does the kernel go on with a receive on fd that a signal has interrupted? */
bool ds_recv_restarts(int fd) DS_HIDDEN;

/* Receives without a buffer: n bytes at most of what is in the segment go to put, which must not
 * wait, and what that takes is received. Returns what put returns, and keeps its errno; -1 and
 * EAGAIN: nothing there is to be had like that. */
typedef ssize_t ds_put(void *to, const struct iovec *iov, int n);
ssize_t ds_recv_by(struct ds_sock *s, int fd, size_t n, ds_put *put, void *to) DS_HIDDEN;

/* ds_send with MSG_ZEROCOPY in flags. ds_zerocopy_done: a completion is waiting, which recvmsg
 * reads from the error queue (POLLERR). ds_zerocopy_read writes one to m (NULL: nowhere), if the
 * kernel's own queue is empty. */
ssize_t ds_send_zerocopy(struct ds_sock *s, int fd, const struct iovec *iov, int n, int flags) DS_HIDDEN;
bool ds_zerocopy_done(const struct ds_sock *s) DS_HIDDEN;
bool ds_zerocopy_read(struct ds_sock *s, int fd, struct msghdr *m, int flags) DS_HIDDEN;
/* A poller that leads on s, whose descriptor is fd, and waits for events calls ds_lead_listen
 * before it looks, and polls ds_leadfd, too: it becomes readable when another thread's send
 * completes, or another thread shuts sending down or lowers SO_RCVLOWAT. -1: none of these concerns
 * it. ds_zerocopy_used: the program has set SO_ZEROCOPY on some socket. */
void ds_lead_listen(struct ds_sock *s, int fd, unsigned events) DS_HIDDEN;
int ds_leadfd(struct ds_sock *s) DS_HIDDEN;
void ds_zerocopy_used(void) DS_HIDDEN;

/* True if every byte still goes over the shadow and s holds none: a call that this layer does not
 * have (splice, sendfile) may go to the real function. Call ds_tick before it and ds_moved after
 * it. */
bool ds_on_shadow_rx(struct ds_sock *s) DS_HIDDEN;
bool ds_on_shadow_tx(struct ds_sock *s) DS_HIDDEN;
void ds_moved(struct ds_sock *s, size_t sent, size_t received) DS_HIDDEN;

/* FIONREAD and SIOCOUTQ, with what the shadow holds; -1 and errno. */
int ds_fionread(struct ds_sock *s, int fd, int *n) DS_HIDDEN;
int ds_outq(struct ds_sock *s, int fd, int *n) DS_HIDDEN;

/* SIOCATMARK: urgent data is next, and the segment has nothing before it; -1 and errno. */
int ds_at_mark(struct ds_sock *s, int fd, int *at) DS_HIDDEN;

int ds_shutdown(struct ds_sock *s, int fd, int how) DS_HIDDEN;

/* Sets the DSCP of fd, a TCP connection or one that is being made, to its class by the rules (SPEC
 * 8), unless the program has set one. side is 0 for the end that called connect; server is the
 * address of the server's end, of len bytes (NULL: ask fd). Keeps errno. */
void ds_classify(int fd, int side, const struct sockaddr *server, socklen_t len) DS_HIDDEN;

/* The program has set the DSCP or the TCP_USER_TIMEOUT of fd. Keeps errno. */
void ds_node_changed(struct ds_sock *s, int fd) DS_HIDDEN;

/* As setsockopt(fd, SOL_SOCKET, SO_LINGER, value, len). ds_linger_get: getsockopt has written len
 * bytes of SO_LINGER to value, which becomes what the program has set (conn/linger.c). */
int ds_linger_set(struct ds_sock *s, int fd, const void *value, socklen_t len) DS_HIDDEN;
void ds_linger_get(struct ds_sock *s, void *value, socklen_t len) DS_HIDDEN;

/* SO_RCVLOWAT was set. ds_options_set: by a call of now, so those that sleep may have enough. */
void ds_options_changed(struct ds_sock *s, int fd) DS_HIDDEN;
void ds_options_set(struct ds_sock *s, int fd) DS_HIDDEN;

/* SO_SNDBUF was set. Keeps errno. */
void ds_window_changed(struct ds_sock *s, int fd) DS_HIDDEN;

/* Advances the set-up of s: offer, claim, attach, promote. ds_recv, ds_send and ds_ready do so
 * themselves. Costs a load or two when there is nothing to do. */
void ds_tick(struct ds_sock *s, int fd) DS_HIDDEN;

/* A jump out of a signal handler has left a call of this thread on s: releases the locks of that
 * call. */
void ds_jumped(struct ds_sock *s) DS_HIDDEN;

/* ---- readiness ----------------------------------------------------------- */

struct ds_ready {
	unsigned now;    /* POLLIN POLLOUT POLLRDHUP POLLHUP POLLERR that hold now */
	unsigned kernel; /* of the events asked for, those that the shadow decides: poll it for
	                    them as the program would. With POLLHUP and POLLERR here, those
	                    count too if the kernel reports them. */
};

/* Which of events (POLLIN | POLLOUT | POLLRDHUP, ...) hold, as the program should see them. */
struct ds_ready ds_ready(struct ds_sock *s, int fd, unsigned events) DS_HIDDEN;

/* A number that changes with each arrival over the segment that is an edge for edge-triggered
 * epoll: the bits below DS_EDGE_ENDS with data, the others with the end. */
enum { DS_EDGE_ENDS = 56 };
uint64_t ds_edges(struct ds_sock *s) DS_HIDDEN;

/* When the first byte was sent that came over the segment, is unread and is newer than told (an
 * earlier result of ds_edges; 0: any), in ds_ticks; 0: unknown. It is the peer's claim: use it for
 * ordering only. */
uint64_t ds_arrival(struct ds_sock *s, uint64_t told) DS_HIDDEN;

/* True if the peer has rung the doorbell of any connection since the last call with this *seen,
 * before it sent on s: then the kernel has something to report. *seen is 0 at first. */
bool ds_has_rung(struct ds_sock *s, uint64_t *seen) DS_HIDDEN;

/* True if the peer of s, which has a segment, has closed its end, or is gone. */
bool ds_left(struct ds_sock *s) DS_HIDDEN;
/* The kernel has said these events of the shadow, fd. If that has failed (reset, timed out), or has
 * ended though the peer has not said so, the peer is gone from now on: the shadow says what follows
 * once what the segment has is read. Returns which events hold by that; 0 also if the peer was gone
 * already. Takes the lock of rx. */
unsigned ds_shadow_says(struct ds_sock *s, int fd, unsigned said) DS_HIDDEN;
/* Asks the kernel whether the peer of s is gone, or the shadow has failed. */
void ds_look_at_peer(struct ds_sock *s, int fd) DS_HIDDEN;
/* The same, unless that was done in the last 10 ms, or the peer is gone: true: it has asked. */
bool ds_ask_peer(struct ds_sock *s, int fd) DS_HIDDEN;
/* The error of the shadow, which is told by that; 0: none, or s is direct and its peer is there. */
int ds_take_error(struct ds_sock *s, int fd) DS_HIDDEN;
/* Notes an error that the program has not been told: of a connection that is broken, or taken from
 * the shadow; of one that is not ds_plain. One call is told it, before all say end of file or
 * EPIPE. */
void ds_owe(struct ds_sock *s, int error) DS_HIDDEN;
/* What a call is told that found the error shadow (0: none) on the shadow: that, or the error that
 * is owed to the program, which is owed no more. A connection that is broken has one error. */
int ds_tell_error(struct ds_sock *s, int shadow) DS_HIDDEN;

/* True if s is direct both ways and ds_ready would report nothing but room to send. Takes no
 * lock. */
bool ds_quiet(struct ds_sock *s) DS_HIDDEN;
/* True if s is direct both ways, has bytes, and ds_ready would report nothing but these and room to
 * send. Takes no lock: another thread may have taken them meanwhile. */
bool ds_only_data(struct ds_sock *s) DS_HIDDEN;
/* True if the bell of s, which is quiet, tells of all that can happen to it: the peer is on this
 * host, and no other process has this end. */
bool ds_bell_tells(struct ds_sock *s) DS_HIDDEN;

/* Which directions are direct: 1 outbound, 2 inbound, 3 both, 0 neither. */
int ds_direct(struct ds_sock *s) DS_HIDDEN;

/* Sleeping until s is ready, among other things:
 *
 * 	ds_wait_begin(s)                 shadow only, or bell too? see below
 * 	ds_arm(s, events) for each; ds_barrier() once; ds_ready again for each
 * 	real poll over: the shadow for .kernel; ds_bell(s), ds_wakefd(s) for POLLIN
 * 	if the doorbell or the wakefd is readable or hung up: ds_rung(s)
 *	ds_disarm(s, had); ds_wait_end(s); ds_ready again
 *
 * Between ds_wait_begin and ds_wait_end no bell appears or goes: a set-up that needs one waits, and
 * writes to the wakefd (an eventfd; -1 if there is none) to wake the sleeper. A poller that can add
 * a bell while it sleeps (epoll) does not need ds_wait_begin: see ds_notices.
 *
 * ds_arm returns false if another sleeper of s has the bell: then sleep without it, and look again
 * after at most DS_FOLLOW_MS. had of ds_disarm is what ds_arm returned. A poller that got false
 * calls ds_follow: true means that the other sleeper is in this process and writes to the wakefd
 * when it wakes, so that DS_LEADER_MS is enough; call ds_follow_end when the sleep is over. */
enum { DS_FOLLOW_MS = 5, DS_LEADER_MS = 100 };
bool ds_follow(struct ds_sock *s) DS_HIDDEN;
void ds_follow_end(struct ds_sock *s) DS_HIDDEN;
void ds_wait_begin(struct ds_sock *s) DS_HIDDEN;
void ds_wait_end(struct ds_sock *s) DS_HIDDEN;

/* The same around a system call on the shadow, for the rest of the block that declares a DS_USE,
 * even if the thread is cancelled there or a signal handler jumps out of it. ds_use_end ends it
 * earlier. */
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

/* The same for the epoll sets of the process, which may be armed while no thread sleeps; s has a
 * bell. ds_arm_sets returns false if a sleeper of another process has the bell: these sets may then
 * be woken for nothing. ds_rung_sets is called when the bell is readable: true if it has read it,
 * and the caller notifies all other sets that hold s; false if the sleeper that has the bell will
 * read it. Both take locks of s only, so the caller may hold its own. */
bool ds_arm_sets(struct ds_sock *s, unsigned events) DS_HIDDEN;
void ds_disarm_sets(struct ds_sock *s, bool had) DS_HIDDEN;
bool ds_rung_sets(struct ds_sock *s) DS_HIDDEN;
/* Asks the kernel whether the leader has died: if so nobody leads any more, and it returns true. */
bool ds_leader_check(struct ds_sock *s) DS_HIDDEN;
/* Does this process wait for room (events), and may another one shut sending down, or is the queue
 * full of small messages? No descriptor tells a leader: it looks again after DS_LEADER_MS. */
bool ds_unheard(struct ds_sock *s, unsigned events) DS_HIDDEN;
int ds_bell(struct ds_sock *s) DS_HIDDEN; /* -1: none (yet) */
int ds_wakefd(struct ds_sock *s) DS_HIDDEN;
void ds_wakefd_make(struct ds_sock *s) DS_HIDDEN; /* makes the wakefd of s, if that is possible */

/* What this layer reports to the one above. */
struct ds_dgram;
struct ds_notices {
	/* s has got a bell, and no byte can have come over the segment yet: add the bell to the
	 * epoll sets that hold s, and arm it for them if a thread sleeps there. Called within
	 * ds_tick, by the thread that made the offer or attached, with the lock of setup: it must
	 * not call ds_tick, ds_recv or ds_send. */
	void (*bell)(struct ds_sock *s);
	/* A thread has read the bell, for which epoll sets of the process are armed too: all of
	 * them must look again. Called by ds_rung, without any lock of this layer. */
	void (*rung)(struct ds_sock *s);
	/* A descriptor of s for a call that has slept: fd, if it still is one. */
	int (*still)(struct ds_sock *s, int fd);
	/* A descriptor of l, which is SETTLING, for its handle: fd, if it is still one; -1: there
	 * is none any more. Who closes one from then on calls ds_life_renumbered before. */
	int (*open)(struct ds_life *l, int fd);
	/* The library's own descriptor from has the number to from now on; from is about to be
	 * closed: epoll sets, which know an entry by its number, take to. */
	void (*moved)(int from, int to);
	/* s ends, and what it has left behind (ds_left_behind) the shadow does not take now: makes
	 * a process that goes on writing, by a copy of fd. False: it cannot. No lock is held. */
	bool (*stay)(struct ds_sock *s, int fd);
	/* The kernel has brought a datagram to a UDP socket that has records in memory, and threads
	 * sleep in sets with it: they look again. No lock of this layer's sockets is held. */
	void (*due)(struct ds_dgram *d);
};
/* Another thread is about to close a descriptor by which calls on s may be under way: wakes those
 * that sleep, to go on by another. */
void ds_renumbered(struct ds_sock *s) DS_HIDDEN;
/* Call it once, before the first connection. Without it nothing is reported. */
void ds_tell(const struct ds_notices *to) DS_HIDDEN;

/* Makes *to, which is -1, an eventfd, if that is possible. Several threads may do so at once.
 * ds_fd_close closes it. */
void ds_eventfd_make(int *to) DS_HIDDEN;
void ds_fd_close(int fd) DS_HIDDEN;

/* True if fd is one of the library's own (bell, broker, statistics), which the program's close,
 * dup2 and close_range must not touch. */
bool ds_own_fd(int fd) DS_HIDDEN;
/* The program is about to give fd to another file: a descriptor of ours moves to another number.
 * False, and EBADF: it cannot, since its number is fixed, another thread may use it, or a signal
 * handler has interrupted a call that does. */
bool ds_fd_give_up(int fd) DS_HIDDEN;
/* How many descriptors the process may have. */
unsigned ds_fds_most(void) DS_HIDDEN;
/* In a child of fork, before it uses any descriptor of the library's. */
void ds_fds_forked(void) DS_HIDDEN;

/* Spinning before a sleep. Call ds_spin_begin when the first look found nothing; look again as long
 * as ds_spin_more returns true; call ds_spin_end once, with true when a look has found something,
 * or with false after the sleep. s may be NULL (many sockets): then the budget adapts per
 * thread. */
struct ds_spinner {
	unsigned budget, vain, rest; /* ns; spins in a row that found nothing; sleeps left without spinning */
	unsigned pause, again;	     /* sleeps left without yielding; log2 of how many there were */
	int sum;		     /* us that yields have saved, since it was last reset */
	unsigned nap;		     /* us that a sleep takes */
};
struct ds_spin {
	unsigned long long start, until, next, end, budget; /* in ticks of the time stamp counter */
	struct ds_spinner *of;
	unsigned rounds, yields;
	bool polite;  /* yields are allowed */
	bool crowded; /* others want the CPU */
	bool asked;   /* nobody took it when it was offered */
	unsigned late; /* us for which they kept it too long */
};
void ds_spin_begin(struct ds_spin *p, struct ds_sock *s) DS_HIDDEN;
bool ds_spin_more(struct ds_spin *p) DS_HIDDEN;
void ds_spin_end(struct ds_spin *p, struct ds_sock *s, bool found) DS_HIDDEN;

/* What a call that waits in a loop has done about spinning. It spins once.
 *
 *   state   event                     next
 *   NOT     it spins, and finds none  OPEN
 *   OPEN    a sleep has ended         OVER   ds_spin_end: the spin's account is closed
 *   NOT     a sleep has ended         OVER   there is no spin to account for */
enum ds_spun { DS_SPUN_NOT, DS_SPUN_OPEN, DS_SPUN_OVER };
/* A sleep has ended. *p is read only in OPEN: before, nobody has written to it. Keeps errno. */
void ds_spun_slept(enum ds_spun *state, struct ds_spin *p) DS_HIDDEN;

/* A reader that yields the CPU to others of its program, goroutines, and looks again, before it
 * sleeps. One reader at a time has it.
 *
 *   state      event                                  next
 *   DS_SLEEPS  a message has come, no rest is left    DS_YIELDS
 *   DS_SLEEPS  a message has come, some rest is left  DS_SLEEPS  one less
 *   DS_YIELDS  a message has come                     DS_YIELDS
 *   DS_YIELDS  nothing has come for 100 us            DS_SLEEPS  twice in a row: rests for 64 sleeps */
struct ds_yield {
	enum { DS_SLEEPS, DS_YIELDS } state;
	unsigned vain, rest;   /* times in a row that nothing came; sleeps left without yielding */
	uint64_t messages;     /* that had come when it last began to wait, */
	uint64_t since;	       /* and when that was, by ds_ticks */
};
/* Is such a reader, which has found nothing, to yield? Any thread; no lock. */
bool ds_yields(struct ds_sock *s) DS_HIDDEN;

/* ---- giving up, fork, exec ------------------------------------------------ */

/* Moves both directions back to the shadow, for good: for exec of a program without the library,
 * SCM_RIGHTS, io_uring. Does not wait for the peer. */
void ds_fall_back(struct ds_sock *s, int fd) DS_HIDDEN;
/* Moves the outbound direction alone: for MSG_OOB and control data, which the kernel sends. */
void ds_send_back(struct ds_sock *s, int fd) DS_HIDDEN;

/* The program has disconnected fd, by connect to AF_UNSPEC: all processes that share s go on with
 * the socket on the shadow, and what was unread is lost. */
void ds_disconnected(struct ds_sock *s, int fd) DS_HIDDEN;

/* Waits until the shadow has taken all that this side has to write there again, because the peer
 * has fallen back; then what the program sends by the kernel alone follows it. False and errno: as
 * a send on a socket without room. */
bool ds_written(struct ds_sock *s, int fd, int flags) DS_HIDDEN;

/* What is unread in the segment. May ask the kernel; takes rx_lock. */
enum ds_unread {
	DS_UNREAD_NONE,	 /* or there is no segment */
	DS_UNREAD_SOME,	 /* and the sender can write it to the shadow */
	DS_UNREAD_ENDED, /* and it cannot any more */
};
enum ds_unread ds_unread(struct ds_sock *s, int fd) DS_HIDDEN;
/* After ds_fall_back: true if the shadow has, read or not, all that the peer left in the
 * segment, or there is nothing, and has taken all that this side sent: the segment is not needed
 * any more. */
bool ds_handed(struct ds_sock *s, int fd) DS_HIDDEN;
/* True if s has a segment and its bell is open: a child of vfork may have closed its parent's. */
bool ds_bell_open(struct ds_sock *s) DS_HIDDEN;
/* True if the peer answers its bell: a peer that has armed and reads it is inside the library, and
 * looks at what this side has said before it does anything else; one that computes, sleeps
 * elsewhere or is stopped does not. Call it repeatedly, with *rung false at first. */
bool ds_hears(struct ds_sock *s, bool *rung) DS_HIDDEN;
/* True if no other process has the connection open. s has a segment. */
bool ds_only_here(const struct ds_sock *s) DS_HIDDEN;
/* True if a program that this process executes can continue with s as it is (ds_inherited): s has
 * no segment and has asked for none, and no other process has it open. Sets *side, for
 * ds_inherited. Takes no lock: exec ends the other threads. */
bool ds_may_inherit(const struct ds_sock *s, int *side) DS_HIDDEN;
/* Tells whether one of the descriptors of s is a standard stream (on). If s has no segment it gets
 * none while that is so. Returns whether s has none. */
bool ds_stream(struct ds_sock *s, bool on) DS_HIDDEN;
bool ds_is_stream(const struct ds_sock *s) DS_HIDDEN;
/* This process will not use s again, but may keep it open until it ends: those that share it, if
 * there are any, need not count it. direct: also if s has a segment; no handler of the program runs
 * any more. Writes memory only; the process has one thread. */
void ds_leave(struct ds_sock *s, bool direct) DS_HIDDEN;
/* True if another process shares s, which has no segment. */
bool ds_leaves(const struct ds_sock *s) DS_HIDDEN;
/* by = 1: one process more has s, -1: one less. */
void ds_count_process(struct ds_sock *s, int by) DS_HIDDEN;
/* Where all that share s, which has a segment, find the ID of the process that ds_notices.stay has
 * made. */
pid_t *ds_writer(struct ds_sock *s) DS_HIDDEN;
/* The library's own descriptors for s; -1 where there is none. */
void ds_own_fds(const struct ds_sock *s, int fds[2]) DS_HIDDEN;

/* This process is about to use s: another one that has it, too, no longer gets a segment for it or,
 * if it has one, s gets it as well. ds_recv, ds_send and ds_ready call it. */
void ds_sharer_use(struct ds_sock *s, int fd) DS_HIDDEN;
/* Is a call under way that waits on the shadow, or moves bytes there? */
bool ds_shadow_used(const struct ds_sock *s) DS_HIDDEN;
/* Before a fork, for a connection in no epoll set: until they use it, parent and child do not
 * count. */
void ds_sharer_forking(struct ds_sock *s) DS_HIDDEN;

/* Around fork, but not vfork: ds_fork_prepare before it, then ds_fork_parent(pid) in the parent and
 * ds_fork_child in the child. All sockets of the process are shared afterwards; the child closes
 * those it does not want by ds_close. ds_fork_prepare_for: the child has s alone. The others are
 * not counted: one that another thread closes meanwhile has no other process that could end it. */
void ds_fork_prepare_for(struct ds_sock *s) DS_HIDDEN;
static inline void ds_fork_prepare(void) { ds_fork_prepare_for(NULL); }
/* False until the first call that conn/ keeps something of: then these three have nothing to do. */
extern bool ds_setup_used DS_HIDDEN;
void ds_fork_parent(pid_t pid) DS_HIDDEN;
void ds_fork_child(void) DS_HIDDEN;

/* The process ends without closing s: ends the connection as the kernel's close would. going: it
 * ends at once, or has other threads: this only sees to what is left to write. Before an exec that
 * closes fd (FD_CLOEXEC) in a child of fork, call ds_close instead. */
void ds_exit_one(struct ds_sock *s, int fd, bool going) DS_HIDDEN;

/* UDP sockets. */
#include "conn/dgram.h"

#endif
