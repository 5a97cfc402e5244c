/* Young connections, of which conn/ need not know: those that have hardly been used (conn/sock.h,
 * struct ds_early). The kernel makes the program's calls on them; those under way are counted, and
 * conn/ takes the count over with the connection.
 *
 *   CONN_PENDING, young ─ ripe, or a call that needs more ─▶ CONN_SETTLING ─▶ CONN_UP or CONN_PLAIN
 */
#ifndef DS_YOUNG_H
#define DS_YOUNG_H

#include "fd/fdtab.h"

/* As conn_peek, but hands a young one to conn/. */
struct conn *conn_get(int fd) DS_HIDDEN;

/* If c is connected, young or not, hands it to conn/. conn_connected: it is. */
void conn_completed(struct conn *c, int fd) DS_HIDDEN;
void conn_connected(struct conn *c, int fd) DS_HIDDEN;

/* Hands c to conn/ if it is young and connected, or waits for the thread that does so. */
void conn_settle(struct conn *c, int fd) DS_HIDDEN;

/* Gives up direct sockets for c for good. */
void conn_demote(struct conn *c, int fd) DS_HIDDEN;

/* Hands all young ones to conn/. young_settle_servers: those that were accepted. */
void young_settle(void) DS_HIDDEN;
void young_settle_servers(void) DS_HIDDEN;

/* For the program that a child of vfork is about to execute: those that are young or not connected
 * yet and have this cookie (0: it is not to be had) stay on TCP. True: there were such. */
bool young_leave(uint64_t cookie) DS_HIDDEN;

/* young_count counts *k, a real call on c, which is young and w. False: it is young no more.
 * young_begin begins *k on c, which is not up; false: it is up now. young_end: the real call is
 * over. */
struct call;
bool young_count(struct call *k, struct conn *c, int fd, uintptr_t w) DS_HIDDEN;
bool young_begin(struct call *k, struct conn *c, int fd, uintptr_t w) DS_HIDDEN;
static inline void young_end(struct conn *c)
{
	if (__builtin_expect(fd_add(&c->early, -1) & DS_TAKEN_OVER, 0))
		ds_early_end(c->s);
}

#endif
