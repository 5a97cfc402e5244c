// node.h: the socket to the node, and the memory that comes by it.
#ifndef EXN_NODE_H
#define EXN_NODE_H

#include "port.h"

// exn_node_dial connects to the node of this network namespace. -1: there is none.
int exn_node_dial(void);

// exn_node_receive takes a message, and its descriptors. 1: there was one; 0: there is none;
// -1: the node has ended.
int exn_node_receive(int sock, struct exn_msg *m, int fds[EXN_FDS], bool wait);

// exn_node_send sends a message, with a descriptor unless it is -1. False: the node has ended.
bool exn_node_send(int sock, const struct exn_msg *m, int fd);

// exn_node_close closes the descriptors of a message that nobody has taken, and forgets them.
void exn_node_close(int fds[EXN_FDS]);

// exn_node_map maps memory that nobody can shorten, of exactly size bytes. NULL: it is not such.
void *exn_node_map(int fd, size_t size, bool write);

#endif
