/* What the interposed calls have in common. */
#ifndef DS_HOOKS_H
#define DS_HOOKS_H

#include "fd/fd.h"
#include "segment/segment.h"

#define EXPORT __attribute__((visibility("default")))
#define ALIAS(name, of) extern __typeof__(of) name EXPORT __attribute__((alias(#of), copy(of)))

/* Sockets that whoever runs next would inherit are given back to TCP, but for those that heirs, if it is not NULL, takes:
 * exec in this process, or in a vfork child. The kernel's list of descriptors is asked, not our table: in a vfork child
 * the table is the parent's, and the descriptors are not. No memory is allocated. */
struct heirs;
void inherit_demote(struct heirs *heirs) DS_HIDDEN;
/* The same before a child is made by the C library itself. */
void spawn_demote(enum heir heir) DS_HIDDEN;

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
