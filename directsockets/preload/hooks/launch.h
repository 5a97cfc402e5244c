/* Static programs that a program starts. */
#ifndef DS_LAUNCH_H
#define DS_LAUNCH_H

#include "fd/fd.h"

enum { LAUNCH_WORDS = 6 };

/* What is to be executed in the place of file, so that it gets the library: a path; NULL: file
 * itself. */
const char *launcher_of(const char *file, bool search, char *const argv[], char *const envp[]) DS_HIDDEN;
/* launch_room: how many pointers the launcher's arguments are, and NULL. launch_args writes them.
 * */
size_t launch_room(char *const argv[]) DS_HIDDEN;
void launch_args(const char *file, char *const argv[], char *args[]) DS_HIDDEN;

#endif
