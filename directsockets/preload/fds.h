/* Descriptors of the library's own: kept high, out of the program's way, and known. */
#ifndef DS_FDS_H
#define DS_FDS_H

#include "real.h"

/* Takes fd: moves it up if it can, and remembers it. Returns its number. */
int ds_fd_keep(int fd) DS_HIDDEN;
/* Closes a kept descriptor. */
void ds_fd_close(int fd) DS_HIDDEN;

#endif
