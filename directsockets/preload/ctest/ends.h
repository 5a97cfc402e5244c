// Two ends of real TCP connections in this process, with a small broker between them.
#ifndef ENDS_H
#define ENDS_H

#include "harness.h"

#include "conn/broker.h"
#include "conn/inner.h"
#include "small_broker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>

extern int listener;
extern struct sockaddr_in at;

struct side {
	int fd;
	struct ds_life life;
	struct ds_sock *s;
};

// starts a broker, whose path is stored, and listens
pid_t ends_start(char *path, size_t n);
void ends_stop(pid_t broker, char *path); // which is cut off

ssize_t put(struct side *a, const void *p, size_t n, int flags);
ssize_t get(struct side *a, void *p, size_t n, int flags);
void put_all(struct side *a, const uint8_t *p, size_t n);

// whatever becomes of them
void connect_plain(struct side *a);
void accept_plain(struct side *a);
void hang_up_plain(struct side *a);

void connect_to(struct side *a);
void accept_from(struct side *a);
void hang_up(struct side *a);

// both ends in this thread: exchanges bytes until both directions are direct
void pair_up(struct side *c, struct side *s);
void exchange(struct side *c, struct side *s, int i);

int open_fds(void); // how many descriptors are open

#endif
