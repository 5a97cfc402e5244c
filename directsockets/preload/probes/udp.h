// What the probes of UDP share.
#ifndef UDP_H
#define UDP_H

#include "probe.h"

#include <netinet/udp.h>

// udp_socket binds one to a port of 127.0.0.1 that addr then has; udp_pair makes two, of which the
// client is connected to the server, and warms them up, until what they send each other goes
// through memory if the library is there.
int udp_socket(struct sockaddr_in *addr);
void udp_pair(int *client, int *server);
void udp_warm(int client, int server);
// through is how many datagrams this process has sent through memory.
unsigned long through(void);
// to sends text from the server to the client of a pair.
ssize_t to(int server, int client, const char *text);
// udp_asleep waits until a thread is in one of the kernel's calls that wait for a descriptor. 0: it
// has not begun yet.
void udp_asleep(const int *tid);
// show receives one datagram and writes what it is. shown writes what recv returned.
void show(int fd, int flags);
void shown(const char *buf, ssize_t n);
// quiet says that nothing is to be read.
void quiet(int fd);
// drained is for receivers: reads what is there, and says how much that was.
int drain(int fd);

#endif
