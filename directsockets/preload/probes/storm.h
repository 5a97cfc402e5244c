#ifndef STORM_H
#define STORM_H

#include "probe.h"

/* What probes of interrupted calls share: a connection, a storm of signals, and a process that
 * counts what comes. The sums are the same whatever was interrupted when. */

enum { TICKS = 400, ROUNDS = 20000000 };

extern char buf[1 << 18];
extern int c, s;
/* fired counts the signals of a storm, by_handler what its handler did, wrong what should not have
 * been. */
extern volatile long fired, by_handler, wrong;

/* add adds to a counter. A handler may add while another, or what it has interrupted, adds. */
void add(volatile long *n, long more);

/* storm has a timer interrupt this thread until stop_timer; the handler, on_tick, calls fn. */
void storm(void (*fn)(void), int flags);
void stop_timer(void);
void on_tick(int sig);

struct counts {
	long m, h, other;
};

/* count_begin connects c to a process that counts what comes, so that the sender has a connection
 * and a process for itself, and fills buf with 'M'. It returns the process. */
pid_t count_begin(void);
/* counted ends c's direction and takes what the process has counted. */
void counted(pid_t pid, struct counts *n);
/* send_until sends until so many signals have fired, all of buf in every big-th call (0: in none),
 * and returns how many bytes. */
long send_until(long ticks, unsigned big);
/* count_end ends the storm, and writes whether all that was sent has come. */
void count_end(pid_t pid, long sent);

#endif
