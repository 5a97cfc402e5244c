// Small probes of socket semantics. Each prints a transcript of what it sees;
// the kernel's own is the oracle: a run with the preload library must print
// the same.
#ifndef PROBE_H
#define PROBE_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct probe {
	const char *name;
	void (*run)(void);
	int tcp; // the probe cannot be, or need not be, on the direct path
};

extern const struct probe io_probes[], flag_probes[], ready_probes[], set_probes[], proc_probes[], end_probes[], disconnect_probes[], call_probes[], exec_probes[], inherited_probes[], listen_probes[], setup_probes[], copy_probes[], linger_probes[], pointer_probes[], zerocopy_probes[], signal_probes[], jump_probes[], cancel_probes[], order_probes[], edge_probes[], errno_probes[], thread_probes[], share_probes[], sharer_probes[], killed_probes[], reuse_probes[], limit_probes[], renumber_probes[], retaken_probes[], vfork_probes[], told_probes[], uncounted_probes[], settling_probes[], sealed_probes[], apart_probes[], atfork_probes[], leave_probes[], rest_probes[], udp_probes[], udpset_probes[], udpwait_probes[], udpproc_probes[], udpfork_probes[], udpsays_probes[], udprandom_probes[], way_probes[], own_probes[], past_probes[], made_probes[];

// sealed_program is what a process in a sandbox executes.
int sealed_program(void);

// out writes a line of the transcript.
void out(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// fewer returns n, or a tenth of it where PROBE_SHORT is set (./check.sh quick).
int fewer(int n);

// random_below draws a number below n, which is 32768 at most.
unsigned random_below(unsigned *seed, unsigned n);

// R writes what a call returned: a number or the name of the error.
#define R(call) result(#call, (long)(call))
long result(const char *what, long rc);

const char *errname(int err);

// pair makes a TCP connection over loopback and warms it up, until both of
// its directions are direct if the library is there. pair_cold does not.
void pair(int *client, int *server);
void pair_cold(int *client, int *server);

// hang_up closes c, and s when it has read the end.
void hang_up(int c, int s);
void warm(int client, int server);

// pair_on makes one at a listener.
void pair_on(int l, const struct sockaddr_in *addr, int *client, int *server);

// is_uncounted tells whether the library knows fd only lightly yet, has_core whether its core does.
// Without the library: no, and yes.
int is_uncounted(int fd);
// streams_seen says whether a standard stream may be direct.
int streams_seen(void);
int has_core(int fd);

// begun is how many requests a pair has had when it is made.
int begun(void);

// is_cold tells whether connections are to begin as they are; is_direct that something went through
// memory.
int is_cold(void);
void is_direct(void);

// still_direct fails the run with the library if a connection that pair made has gone back to TCP.
void still_direct(int client, int server);
// direct is what the library says about fd: 1 sends direct, 2 receives direct, 3 both, 0 neither,
// or there is no library.
int direct(int fd);
int has_library(void);
int listener(struct sockaddr_in *addr);
int dial(const struct sockaddr_in *addr);

// revents writes poll or epoll bits by name.
const char *revents(unsigned bits);

void fill(char *buf, size_t n, unsigned seed);
void put(int fd, const void *buf, size_t n);	    // writes all or dies
size_t get(int fd, void *buf, size_t n);	    // reads n or to the end
int readable(int fd, int ms);			    // poll(POLLIN)
void nonblock(int fd, int on);
pid_t start(void (*body)(void *), void *arg);	    // fork
void finish(pid_t pid);				    // wait and write how it ended
void nap(int ms);
long monotonic(void);				    // a clock, in ms

// LONG is how many milliseconds a call waits for what comes: it only keeps a probe from hanging.
// What says that nothing comes waits for a few.
enum { LONG = 60000 };

// arrived waits until n bytes can be read at fd, ended until the peer's end is known there, cut
// until it is known that nothing can be sent either.
void arrived(int fd, int n);
void ended(int fd);
void cut(int fd);
void pass_fd(int over, int fd);		    // a copy of fd, as a message
void *write_later(void *fd);		    // a thread: 50 ms, then "late" to *fd

int ep_new(void);
int ep_set(int ep, int op, int fd, unsigned events, unsigned long data);
// epoll_wait, which who stops and continues a program, or stops its control group, interrupts.
int ep_hear(int ep, struct epoll_event *ev, int max, int ms);
int ep_show(int ep, int max, int ms);	    // waits and writes what comes, sorted by data
void die(const char *what);
int inherited(char **argv);			    // inherited.c: this program, executed by a probe

#endif
