/* What the interposed calls have in common. */
#ifndef DS_HOOKS_H
#define DS_HOOKS_H

#include "fd/epoll.h"
#include "fd/fdtab.h"
#include "fd/pollset.h"
#include "segment/memory.h"

#define EXPORT __attribute__((visibility("default")))
#define ALIAS(name, of) extern __typeof__(of) name EXPORT __attribute__((alias(#of), copy(of)))

/* Who gets descriptors of connections: the program that this process, or a child of vfork, is about to become; one that
 * posix_spawn makes, to which a descriptor is given by dup2, or which only inherits it; a shell of system's. */
enum heir { HEIR_EXEC, HEIR_DUP, HEIR_LEAK, HEIR_SYSTEM };

/* Sockets that whoever runs next would inherit are given back to TCP: exec in this process, or in a vfork child. */
void inherit_demote(void) DS_HIDDEN;
/* The same before a child is made by the C library itself. */
void spawn_demote(enum heir heir) DS_HIDDEN;

/* Gives fd of c back to TCP, since heir is to have it. If bytes that it would have to read cannot follow there, keeps
 * a process that hands them on: then this process's descriptors of c are an end of a pair of sockets, and true is
 * returned. In a child of vfork only fd is, and *end is another descriptor of that end, closed by exec; else it is
 * -1. May wait for the peer, for a second at most. */
bool hand_over(struct conn *c, int fd, enum heir heir, int *end) DS_HIDDEN;

/* Around a fork without the C library's. */
void fork_prepare(void) DS_HIDDEN;
void fork_parent(pid_t pid) DS_HIDDEN;
void fork_child(void) DS_HIDDEN;
/* A system call by its number, with six arguments: if it is a fork, it is done so, and *pid is what it returned. */
bool fork_call(long nr, const long *a, long *pid) DS_HIDDEN;

/* Before the program runs: looks up what signal.c calls. */
void signals_init(void) DS_HIDDEN;

/* Descriptors that a message passes on by SCM_RIGHTS are given back to TCP. False: there is no message at m. */
bool rights_demote(const struct msghdr *m) DS_HIDDEN;

/* Is there a set, which can be read and written, with sockets of ours in it? */
bool poll_ours(struct pollfd *fds, nfds_t n) DS_HIDDEN;
bool select_ours(int n, fd_set *in, fd_set *out, fd_set *except) DS_HIDDEN;

/* Is there a time at t that the kernel takes for a timeout? */
static inline bool time_fine(const struct timespec *t)
{
	return ds_readable(t, sizeof *t) && t->tv_sec >= 0 && t->tv_nsec >= 0 && t->tv_nsec <= 999999999;
}

#endif
