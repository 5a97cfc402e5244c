/* Descriptors of the library's own: kept high, out of the program's way, and known. */
#ifndef DS_FDS_H
#define DS_FDS_H

#include "segment/segment.h"

/* Takes fd: moves it up if it can, and remembers it. Returns its number. */
int ds_fd_keep(int fd) DS_HIDDEN;
/* Closes a kept descriptor. */
void ds_fd_close(int fd) DS_HIDDEN;

/* fd is an end of a pair of Unix sockets, of which a peer has the other. Nobody can send descriptors to it any more:
 * false if the kernel cannot forbid that (before Linux 6.16). */
bool ds_fd_no_rights(int fd) DS_HIDDEN;
/* Closes such an end. Descriptors in its queue go with it, and the peer may have sent one that takes long to close, as
 * a TCP socket with SO_LINGER does: nobody waits for that. */
void ds_fd_abandon(int fd) DS_HIDDEN;

#endif
