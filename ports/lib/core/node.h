// node.h: the socket to the node, and the memory that arrives over it.
#ifndef EXN_NODE_H
#define EXN_NODE_H

#include "port.h"

// exn_node_dial connects to the node of this network namespace and returns the socket, or -1 if
// there is no node.
int exn_node_dial(void);

// exn_node_receive receives a message and its descriptors. It returns 1 for a message, 0 if there
// is none, -1 if the node has ended.
int exn_node_receive(int sock, struct exn_msg *m, int fds[EXN_FDS], bool wait);

// exn_node_send sends a message, with a descriptor unless fd is -1. It returns false if the node
// has ended.
bool exn_node_send(int sock, const struct exn_msg *m, int fd);

// exn_node_close closes the descriptors of a message that are still in fds, and sets them to -1.
void exn_node_close(int fds[EXN_FDS]);

// exn_node_map maps memory of exactly size bytes that is sealed against shrinking. It returns
// NULL for any other.
void *exn_node_map(int fd, size_t size, bool write);

#endif
