/* The life of connections (conn/life.h), for those that have a struct conn. */
#ifndef DS_UNCOUNTED_H
#define DS_UNCOUNTED_H

#include "fd/fdtab.h"

/* As conn_peek, but makes the handle of an uncounted one. */
struct conn *conn_get(int fd) DS_HIDDEN;

/* If c is connected, makes its handle. */
void conn_completed(struct conn *c, int fd) DS_HIDDEN;

/* Gives up direct sockets for c for good. */
void conn_demote(struct conn *c, int fd) DS_HIDDEN;

/* Makes the handles of all uncounted ones. uncounted_settle_servers: of those that were accepted.
 * */
void uncounted_settle(void) DS_HIDDEN;
void uncounted_settle_servers(void) DS_HIDDEN;

/* For the program that a child of vfork is about to execute: those that have no handle yet and this
 * cookie (0: it is not to be had) stay on TCP. True: there were such. */
bool uncounted_leave(uint64_t cookie) DS_HIDDEN;

/* A jump leaves a real call on an uncounted conn: struct conn *. */
void uncounted_jumped(void *c) DS_HIDDEN;

#endif
