/* The library's own descriptors: kept high, out of the program's way, and if they can be above its
 * soft limit, where they count as none of the program's. A table says which variable
 * holds which. A program that gives a number of ours to a file of its own (dup2) gets it, and ours
 * moves to another. */
#ifndef DS_FDS_H
#define DS_FDS_H

#include "segment/segment.h"

#include <sys/syscall.h>

#define RPC_CALL(name, ...) rpc_result(ds_syscall(SYS_##name, __VA_ARGS__)) /* no cancellation point */
#include "rpc.h"

/* Takes fd, moves it up if it can, and remembers that holder has it. Returns its number, which the
 * caller stores there. The variable stays where it is until ds_fd_close. */
int ds_fd_keep(int fd, int *holder) DS_HIDDEN;
/* The same for one whose number cannot change. */
int ds_fd_fix(int fd) DS_HIDDEN;
/* Do own descriptors take numbers of the few that the program may have? */
bool ds_fds_scarce(void) DS_HIDDEN;
/* Does one more connection or flow leave the program the descriptors and the address space that it
 * may have? offers: to offer one, which leaves as much to those that are taken. */
bool ds_room(bool offers) DS_HIDDEN;

/* fd is one end of a Unix socket pair: has every process closed the other one? What is unread does
 * not hide it. */
bool ds_fd_ended(int fd) DS_HIDDEN;
/* fd is one end of a Unix socket pair whose other end a peer has: forbids the peer to send
 * descriptors. False if the kernel cannot (before Linux 6.16). */
bool ds_fd_no_rights(int fd) DS_HIDDEN;
/* Closes such an end without waiting for the descriptors in its queue: the peer may have sent one
 * that takes long to close, as a TCP socket with SO_LINGER does. */
void ds_fd_abandon(int fd) DS_HIDDEN;

#endif
