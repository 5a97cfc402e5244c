// A broker that is just enough for tests (SPEC 6): one process, one namespace.
#ifndef SMALL_BROKER_H
#define SMALL_BROKER_H

#include <sys/types.h>

// Starts one in a child process at path, and sets EXNET_BROKER. Stops it.
pid_t broker_start(const char *path);
void broker_stop(pid_t pid, const char *path);

/* So many of the next offers are refused: not taken in time. Shared with the broker. */
extern int *broker_refuses;
/* If not 0, it hangs up at HELLO, as one of another version. Shared with the broker. */
extern int *broker_hangs_up;

#endif
