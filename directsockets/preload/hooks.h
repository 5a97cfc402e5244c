/* What the interposed calls have in common. */
#ifndef DS_HOOKS_H
#define DS_HOOKS_H

#include "epoll.h"
#include "fdtab.h"
#include "pollset.h"

#define EXPORT __attribute__((visibility("default")))
#define ALIAS(name, of) extern __typeof__(of) name EXPORT __attribute__((alias(#of), copy(of)))

/* Sockets that whoever runs next without this library would inherit are given back
 * to TCP: exec in this process, or in a vfork child. */
void inherit_demote(void) DS_HIDDEN;
/* The same before a child is made by the C library itself (posix_spawn, system). */
void spawn_demote(void) DS_HIDDEN;

/* Before exec, for fd of c, which the next program inherits: if what it would have to read cannot be given back to
 * TCP, keeps a process that hands it on, and makes fd an end of a pair of sockets. Returns another descriptor
 * of that end, or -1: it was not so. */
int carry(struct conn *c, int fd) DS_HIDDEN;

/* Descriptors that a message passes on by SCM_RIGHTS are given back to TCP. */
void rights_demote(const struct msghdr *m) DS_HIDDEN;

#endif
