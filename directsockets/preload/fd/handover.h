/* Descriptors that become another process's, or another number. */
#ifndef DS_HANDOVER_H
#define DS_HANDOVER_H

#include "fd/uncounted.h"

/* Who gets the descriptors of connections: the program that this process or a child of vfork is
 * about to execute; one started by posix_spawn, which gets a descriptor by dup2 or merely inherits
 * it; the shell of system(3). */
enum taker { TAKER_EXEC, TAKER_DUP, TAKER_LEAK, TAKER_SYSTEM };

/* Moves fd of c back to TCP, because taker gets it. If unread bytes cannot be moved there, starts a
 * process that passes them on; then this process's descriptors of c become one end of a socket
 * pair, and it returns true. In a child of vfork only fd does, and *end is another descriptor of
 * that end, which exec closes; else *end is -1. May wait for the peer, for a second at most. */
bool hand_over(struct conn *c, int fd, enum taker taker, int *end) DS_HIDDEN;

/* s, whose descriptor is fd, ends, and nobody at the other end can take from the segment what it
 * has left there: starts a process that writes it to the shadow. c may be NULL, or about to end.
 * False: it cannot. */
bool stay_behind(struct ds_sock *s, struct conn *c, int fd) DS_HIDDEN;

/* s has fallen back, perhaps with bytes that only the peer can write to the shadow: waits until the
 * peer has begun to, for a second at most. False: it has not. */
bool returned(struct ds_sock *s, int fd) DS_HIDDEN;

/* This process is about to end: at once, as by _exit, or by exit, which flushes streams. What its
 * connections have left to write is written, and other processes that share them need not wait for
 * it, where nothing is direct. */
void fd_leave(bool at_once) DS_HIDDEN;

/* This process is about to restrict its system calls (seccomp), or to use descriptors in a way that
 * the library does not see: moves its connections back to TCP,
 * and from then on passes the program's calls on them straight to the kernel. May wait, for a
 * second at most. */
void fd_seal(void) DS_HIDDEN;

/* As fd_seal if this thread is about to get a table of descriptors of its own: unshare, and there
 * are other threads. */
static inline void fd_unshare(bool unshare)
{
	if (unshare && !ds_one_thread())
		fd_seal();
}

/* newfd has become a duplicate of oldfd. */
void fd_dup(int oldfd, int newfd) DS_HIDDEN;

/* Is fd a TCP socket? Keeps errno. */
bool fd_is_tcp(int fd) DS_HIDDEN;

/* Around a fork that bypasses the C library. fork_prepare_for: of a child that has s alone. */
void fork_prepare(void) DS_HIDDEN;
void fork_prepare_for(struct ds_sock *s) DS_HIDDEN;
void fork_parent(pid_t pid) DS_HIDDEN;
void fork_child(void) DS_HIDDEN;
#endif
