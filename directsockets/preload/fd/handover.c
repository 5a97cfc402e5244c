/* Moves connections that another program inherits back to TCP, with their unread bytes. */
#include "fd/handover.h"
#include "fd/pollset.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* How long a program may be kept from beginning, in ms: while a silent peer is asked; while a
 * parent may close its copy; while the peer may return to TCP. */
enum { ANSWER = 20, PARENT = 200, RETURNED = 1000 };

/* Sleeps for 1 ms. */
static void nap(void)
{
	struct timespec ms = {0, 1000000};

	ds_syscall(SYS_nanosleep, &ms, NULL);
}

/* Would bytes be lost, or stay where they are for as long as the peer likes, if the connection went
 * back to TCP? If a parent has the connection too, the bytes may be for it: it is given time to
 * close its copy. Those of standard streams are the new program's in any case. */
static bool must_pass_on(struct ds_sock *s, int fd, enum taker taker)
{
	bool rung = false, meant = taker == TAKER_EXEC ? fd <= STDERR_FILENO : taker == TAKER_DUP;
	bool vforked = taker == TAKER_EXEC && fd_vforked();

	if (taker == TAKER_SYSTEM || !ds_bell_open(s))
		return false;
	for (int ms = 0; ms <= PARENT; ms++, nap()) {
		bool own = ds_only_here(s) && !vforked;

		switch (ds_unread(s, fd)) {
		case DS_UNREAD_NONE:
			return false;
		case DS_UNREAD_ENDED:
			/* A thread that reads would go on beside the process that passes it on. */
			if (taker == TAKER_LEAK && !ds_one_thread())
				return false;
			if (own || meant)
				return true;
			break;
		case DS_UNREAD_SOME:
			if (taker == TAKER_LEAK || ds_hears(s, &rung))
				return false;
			if (ms >= ANSWER && own)
				return true;
		}
	}
	return meant;
}

/* ---- handing on ------------------------------------------------------------------- */

/* One direction between the connection and the new program, which has the other end of a pair of
 * sockets. */
struct way {
	struct conn *from_conn, *to_conn; /* one of them is it, the other NULL */
	int from, to;
	size_t at, n; /* of buf, what is to be sent */
	bool over;
	char buf[65536];
};

/* Reads what is to be passed on: as recv. */
static ssize_t take(struct way *w)
{
	if (!w->from_conn)
		return REAL(recv, w->from, w->buf, sizeof w->buf, MSG_DONTWAIT);
	return ds_recv(w->from_conn->life.s, w->from, &(struct iovec){w->buf, sizeof w->buf}, 1, MSG_DONTWAIT);
}

/* Writes it: as send. */
static ssize_t give(struct way *w)
{
	const int flags = MSG_DONTWAIT | MSG_NOSIGNAL;

	if (!w->to_conn)
		return REAL(send, w->to, w->buf + w->at, w->n - w->at, flags);
	return ds_send(w->to_conn->life.s, w->to, &(struct iovec){w->buf + w->at, w->n - w->at}, 1, flags);
}

/* Moves bytes one step. False: the way has ended, and the other side has been told. */
static bool move(struct way *w)
{
	ssize_t n;

	if (w->over)
		return false;
	if (w->at == w->n) {
		n = take(w);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return true;
		if (n <= 0)
			goto over;
		w->at = 0;
		w->n = (size_t)n;
	}
	n = give(w);
	if (n > 0)
		w->at += (size_t)n;
	if (n >= 0 || errno == EAGAIN || errno == EINTR)
		return true;
over:
	w->over = true;
	w->at = w->n = 0;
	if (w->to_conn)
		ds_shutdown(w->to_conn->life.s, w->to, SHUT_WR);
	else
		REAL(shutdown, w->to, SHUT_WR);
	return false;
}

/* Passes bytes on until both directions have ended or the program has closed its end; then ends the
 * process. */
static void pump(struct ds_sock *s, struct conn *c, int sock, int pair)
{
	(void)s;
	static struct way in, out;
	bool gone = false;

	in.from_conn = out.to_conn = c;
	in.from = out.to = sock;
	in.to = out.from = pair;
	while (!in.over || !out.over) {
		struct pollfd p[2] = {{sock, 0, 0}, {pair, 0, 0}};

		if (in.at < in.n)
			p[1].events |= POLLOUT;
		else if (!in.over)
			p[0].events |= POLLIN;
		if (out.at < out.n)
			p[0].events |= POLLOUT;
		else if (!out.over)
			p[1].events |= POLLIN;
		if (!p[0].events)
			p[0].fd = -1; /* it has nothing more to tell */
		if (gone && !(p[1].events & POLLIN))
			p[1].fd = -1;
		if (wait_poll(p, 2, NULL, NULL, NULL) < 0)
			continue;
		/* Not a half-close: nobody has the other end any more. What was sent there still
		 * has to go out. */
		gone |= p[1].fd >= 0 && p[1].revents & (POLLHUP | POLLERR);
		if (!move(&out) && gone)
			break;
		if (!gone)
			move(&in);
	}
	fd_closing(sock);
	REAL(close, sock);
	ds_syscall(SYS_exit_group, 0);
	__builtin_unreachable();
}

/* Closes all but four descriptors, of which some may be -1, without a word to anybody: another
 * process has what they name. */
static void close_others(int a, int b, int c, int d)
{
	int keep[4] = {a, b, c, d}, from = 0;

	for (;;) {
		int next = -1;

		for (int i = 0; i < 4; i++)
			if (keep[i] >= from && (next < 0 || keep[i] < next))
				next = keep[i];
		if (next != from && ds_syscall(SYS_close_range, from, next < 0 ? ~0u : (unsigned)next - 1, 0) < 0)
			for (int fd = from; fd < (next < 0 ? 65536 : next); fd++)
				REAL(close, fd);
		if (next < 0)
			return;
		from = next + 1;
	}
}

/* A fork that the program does not see: none of its fork handlers run, no signal reports the
 * child's end, and wait(2) does not wait for it. flags: those of clone(2); id: for
 * CLONE_PARENT_SETTID. */
static pid_t quiet_fork(unsigned long flags, pid_t *id) { return (pid_t)ds_syscall(SYS_clone, flags, 0, id, 0, 0); }

/* Do orphans of this process's descendants become its children? They report their end by SIGCHLD.
 * So does a child of quiet_fork once this process has executed a program. */
static bool gets_orphans(void)
{
	int reaper = 0;

	return ds_syscall(SYS_getpid) == 1 || (ds_syscall(SYS_prctl, PR_GET_CHILD_SUBREAPER, &reaper, 0, 0, 0) == 0 && reaper);
}

/* As dup3, where `by` is a descriptor that the table does not have. */
static void replace(int by, int fd, int flags)
{
	fd_closing(fd);
	REAL(dup3, by, fd, flags);
}

/* What such a process does: for s, of which it has the descriptor sock, and c, or NULL; other is
 * another of its descriptors, or -1. It does not return. */
typedef void work(struct ds_sock *s, struct conn *c, int sock, int other);

/* Clears the word of fd, which may be -1, unless it names c. The word is the parent's: a child of
 * vfork has closed that number for itself alone, and the kernel gave it out again. */
static void forget(int fd, const struct conn *c)
{
	uintptr_t w = fd < 0 ? 0 : fd_word(fd);

	if (w && (!c || word_conn(w) != c))
		__atomic_store_n(&fd_tab[fd], 0, __ATOMIC_RELEASE);
}

/* The rest of start_hidden, in that process. */
static void begin_hidden(work *run, struct ds_sock *s, struct conn *c, int fd, int sock, int other, const sigset_t *all)
{
	int own[2];

	fork_child();
	pthread_sigmask(SIG_SETMASK, all, NULL); /* once more: fork_child gives back that of a section which this thread was in */
	ds_own_fds(s, own);
	close_others(sock, other, own[0], own[1]); /* what fork_child has opened */
	forget(sock, c);
	forget(other, c);
	if (c && sock != fd)
		fd_set_conn(sock, c);
	for (unsigned i = 0; c && i < fd_tab_end; i++) {
		struct conn *one = conn_get((int)i);

		if (one == c && (int)i != sock)
			fd_closing((int)i);
		if (one)
			conn_put(one);
	}
	run(s, c, sock, other);
}

/* Would a child be the first process of a new PID namespace? As that one ends, so do all others of
 * it, and the program could have no child any more. The link leads nowhere until there is one. */
static bool would_be_first(void)
{
	char b[64];

	return ds_syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/ns/pid", b, sizeof b) > 0 &&
	       ds_syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/ns/pid_for_children", b, sizeof b) < 0;
}

/* Starts a process with this library, which the program does not see. It has fd, other, and what
 * the library has for s, and nothing else when this returns: it counts for s alone. It is an
 * orphan. id: NULL or, in memory that is shared, where its ID is stored; such a one is a child of
 * this process, as of quiet_fork, if it gets orphans. False: it failed. */
static bool start_hidden(work *run, struct ds_sock *s, struct conn *c, int fd, int other, pid_t *id)
{
	unsigned long flags = id ? CLONE_PARENT_SETTID | (gets_orphans() ? CLONE_PARENT : 0) : 0;
	int own[2], st = -1;
	sigset_t all;
	pid_t pid;

	if (would_be_first())
		return false;
	sigfillset(&all);
	fork_prepare_for(s);
	ds_own_fds(s, own);
	pid = quiet_fork(0, NULL);
	if (pid == 0) {
		pthread_sigmask(SIG_SETMASK, &all, NULL);
		/* A child of vfork has numbers that the table does not know. */
		int sock = REAL(fcntl, fd, F_DUPFD_CLOEXEC, 3);
		if (sock < 0) /* there is no other number */
			sock = fd;
		close_others(sock, other, own[0], own[1]);
		if ((pid = quiet_fork(flags, id)) == 0)
			begin_hidden(run, s, c, fd, sock, other, &all);
		ds_syscall(SYS_exit_group, pid < 0);
	}
	while (pid > 0 && ds_syscall(SYS_wait4, pid, &st, __WALL, NULL) < 0 && errno == EINTR)
		;
	bool started = pid > 0 && st == 0;
	if (started)
		ds_count_process(s, 1);
	fork_parent(-1); /* no child has the others */
	return started;
}

/* Has a process pass on what is in the segment and what follows: fd, and all descriptors of c that
 * this process has, become one end of a socket pair. A child of vfork has descriptors of its own:
 * there the caller replaces the others, by *end. False: it failed. */
static bool pass_on(struct conn *c, int fd, int *end)
{
	int pair[2], flags = REAL(fcntl, fd, F_GETFL);

	if (kernel_socketpair(SOCK_STREAM | SOCK_CLOEXEC, pair) < 0)
		return false;
	bool started = start_hidden(pump, c->life.s, c, fd, pair[1], NULL);
	REAL(close, pair[1]);
	if (!started) {
		REAL(close, pair[0]);
		return false;
	}
	REAL(fcntl, pair[0], F_SETFL, flags & O_NONBLOCK);
	if (fd_vforked()) { /* a child has descriptors of its own */
		REAL(dup2, pair[0], fd);
		*end = pair[0];
		return true;
	}
	for (unsigned i = 0; i < fd_tab_end; i++) {
		struct conn *other = conn_get((int)i);

		if (other == c)
			replace(pair[0], (int)i, REAL(fcntl, (int)i, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0);
		if (other)
			conn_put(other);
	}
	REAL(close, pair[0]);
	return true;
}

/* SIGTERM ends this process, whatever the program has made of it, and nothing else that can be
 * blocked does: a service manager waits for all processes of a service. */
static void end_by_sigterm(void)
{
	static const char by_default[64]; /* a struct sigaction of the kernel's */
	uint64_t term = 1ull << (SIGTERM - 1);

	ds_syscall(SYS_rt_sigaction, SIGTERM, by_default, NULL, sizeof term);
	ds_syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &term, NULL, sizeof term);
}

/* Writes to the shadow what is left behind, and ends the process. */
static void write_rest(struct ds_sock *s, struct conn *c, int sock, int other)
{
	struct pollfd p = {.fd = sock, .events = POLLOUT};

	(void)c, (void)other;
	end_by_sigterm();
	ds_syscall(SYS_chdir, "/"); /* whose file system is in use in any case */
	while (!ds_written(s, sock, MSG_DONTWAIT)) {
		struct timespec as_tcp = {204, 600000000}; /* what a closed socket of the kernel's gives a peer without room */

		if (ds_syscall(SYS_ppoll, &p, 1, &as_tcp, NULL, 0) == 0)
			break; /* the shadow is reset: it is on guard */
	}
	ds_count_process(s, -1);
	ds_syscall(SYS_exit_group, 0);
	__builtin_unreachable();
}

/* The processes that write what is left behind: the ID of who made it << 32 | its own; 0: none. The
 * lower half is 0 while it is about to be made. A place is free for all but its maker: a child of
 * fork has none of its parent's processes. One that has ended, and is a child, is a zombie until
 * its place is taken again. */
enum { WRITERS = 16 };
static uint64_t writers[WRITERS];

/* Is the writer pid, which this process has made, at work? Once it has ended, an orphan's ID may
 * become another process's: then its place waits for that one, too. */
static bool at_work(pid_t pid)
{
	long r = ds_syscall(SYS_wait4, pid, NULL, WNOHANG | __WCLONE, NULL);

	return r == 0 || (r < 0 && !ds_id_dead((uint32_t)pid));
}

/* Takes a place of writers for `me`, this process; NULL: all of them are at work. */
static uint64_t *writer_place(uint32_t me)
{
	for (int i = 0; i < WRITERS; i++) {
		uint64_t w = __atomic_load_n(&writers[i], __ATOMIC_RELAXED);
		pid_t pid = (pid_t)w;

		if ((w >> 32 != me || (pid && !at_work(pid))) &&
		    __atomic_compare_exchange_n(&writers[i], &w, (uint64_t)me << 32, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return &writers[i];
	}
	return NULL;
}

bool stay_behind(struct ds_sock *s, struct conn *c, int fd)
{
	int saved = errno;
	uint32_t me = (uint32_t)ds_syscall(SYS_getpid);
	uint64_t *place = fd_vforked() || fd_is_sealed() ? NULL : writer_place(me);

	if (c && !conn_hold_live(c))
		c = NULL; /* nobody names it any more: its last descriptor is being closed */
	bool stays = place && start_hidden(write_rest, s, c, fd, -1, ds_writer(s));
	if (place)
		__atomic_store_n(place, stays ? (uint64_t)me << 32 | (uint32_t)*ds_writer(s) : 0, __ATOMIC_RELEASE);
	if (c)
		conn_put(c);
	errno = saved;
	return stays;
}

bool returned(struct ds_sock *s, int fd)
{
	for (int ms = 0; ms <= RETURNED; ms++, nap()) {
		if (ds_handed(s, fd))
			return true;
		if (ds_unread(s, fd) == DS_UNREAD_ENDED)
			return false;
	}
	return false;
}

bool hand_over(struct conn *c, int fd, enum taker taker, int *end)
{
	bool shared = fd_vforked() && taker == TAKER_EXEC, passed;
	int saved = errno;

	*end = -1;
	ds_sharer_use(c->life.s, fd);
	passed = must_pass_on(c->life.s, fd, taker) && pass_on(c, fd, end);
	if (!passed) {
		ds_fall_back(c->life.s, fd);
		if (taker != TAKER_SYSTEM && taker != TAKER_LEAK && ds_bell_open(c->life.s) && !returned(c->life.s, fd) &&
		    ((ds_only_here(c->life.s) && !shared) || fd <= STDERR_FILENO))
			passed = pass_on(c, fd, end);
	}
	errno = saved;
	return passed;
}
