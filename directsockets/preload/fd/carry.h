/* Descriptors that become another process's, or another number. */
#ifndef DS_CARRY_H
#define DS_CARRY_H

#include "fd/fdtab.h"

/* Who gets descriptors of connections: the program that this process, or a child of vfork, is about to become; one that
 * posix_spawn makes, to which a descriptor is given by dup2, or which only inherits it; a shell of system's. */
enum heir { HEIR_EXEC, HEIR_DUP, HEIR_LEAK, HEIR_SYSTEM };

/* Gives fd of c back to TCP, since heir is to have it. If bytes that it would have to read cannot follow there, keeps
 * a process that hands them on: then this process's descriptors of c are an end of a pair of sockets, and true is
 * returned. In a child of vfork only fd is, and *end is another descriptor of that end, closed by exec; else it is
 * -1. May wait for the peer, for a second at most. */
bool hand_over(struct conn *c, int fd, enum heir heir, int *end) DS_HIDDEN;

/* s is frozen, maybe with bytes that only the peer can write to the shadow: waits until it has begun to, for a second at
 * most. False: it does not. */
bool rolled(struct ds_sock *s, int fd) DS_HIDDEN;

/* This process is about to end, by exit, which flushes streams, or _exit: the others that have its connections, of which
 * nothing is direct, need not wait for it. */
void fd_leave(bool flush) DS_HIDDEN;

/* This process is about to be allowed few system calls (seccomp): its connections go back to TCP, and the program's calls
 * on them become the kernel's, without any of the library's. May wait, for a second at most. */
void fd_seal(void) DS_HIDDEN;

/* newfd has become a duplicate of oldfd. */
void fd_dup(int oldfd, int newfd) DS_HIDDEN;

/* Around a fork without the C library's. */
void fork_prepare(void) DS_HIDDEN;
void fork_parent(pid_t pid) DS_HIDDEN;
void fork_child(void) DS_HIDDEN;
#endif
