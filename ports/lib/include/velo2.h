/* velo2.h: EXTOLL's VELO for programs: messages of at most 120 bytes, in order, to mailboxes.
 *
 * Names and values are those that programs for EXTOLL use; this header and the library are
 * exnet's. A port belongs to one thread at a time. See docs/ports.md.
 */
#ifndef VELO2_H
#define VELO2_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint32_t velo2_nodeid_t;
typedef uint32_t velo2_vpid_t;

/* VELO2_MAX_PAYLOAD is the longest message. */
#define VELO2_MAX_PAYLOAD 120

/* The source of a message as velo2_recv reports it, and its parts. */
#define VELO2_ADDR_PACK(node, vpid) ((((uint32_t)(vpid)&0xff) << 16) | ((uint32_t)(node)&0xffff))
#define VELO2_ADDR_NODE(addr) ((uint32_t)(addr)&0xffff)
#define VELO2_ADDR_VPID(addr) ((uint32_t)(addr) >> 16 & 0xff)
#define VELO2_ADDR_UNPACK(addr, node, vpid) ((node) = VELO2_ADDR_NODE(addr), (vpid) = VELO2_ADDR_VPID(addr))

/* A multicast group (0 to 63), to be used as the node in velo2_connect. Group 63 is all nodes
 * but this one. */
#define VELO2_MULTICAST 0x10000000u
#define VELO2_MCADDR_PACK(group) ((uint32_t)(group) | VELO2_MULTICAST)

typedef enum velo2_ret {
	VELO2_RET_SUCCESS = 0,
	VELO2_RET_INV_MSG,      /* longer than VELO2_MAX_PAYLOAD, or than the caller's buffer */
	VELO2_RET_ERROR,        /* the node or the peer has ended */
	VELO2_RET_NO_MSG,       /* nothing has arrived */
	VELO2_RET_NO_MATCH,     /* nothing from that source has arrived */
	VELO2_RET_ERR_FDOPEN,   /* no node runs here, it has no port left, or the VPID is in use */
	VELO2_RET_ERR_MMAP,     /* no memory */
	VELO2_RET_INVALID_MBOX, /* the mailbox is not open, or belongs to another user */
	VELO2_RET_INVALID_NODE, /* there is no such node */
	VELO2_RET_TRY_AGAIN,    /* velo2_try_send: the mailbox is full */
	VELO2_RET_INV_MTT,      /* a message type above 15 */
	VELO2_RET_EOF           /* velo2_recv: the peer has ended, and all it sent was read */
} velo2_ret_t;

typedef struct {
	void *map; /* NULL: not open */
} velo2_port_t;

typedef struct {
	union {
		uint32_t raw; /* VELO2_ADDR_PACK, and VELO2_MULTICAST */
	} dest;
	void *state_map; /* private to the library */
	velo2_port_t *port;
} velo2_connection_t;

/* Open and close a mailbox of this node. velo2_open_vpid opens the one with a VPID of 32 to
 * 255, since all members of a multicast group use the same; 0: any, as in velo2_open. */
velo2_ret_t velo2_open(velo2_port_t *port);
velo2_ret_t velo2_open_vpid(velo2_port_t *port, velo2_vpid_t vpid);
velo2_ret_t velo2_close(velo2_port_t *port);

velo2_nodeid_t velo2_get_nodeid(velo2_port_t *port);
velo2_vpid_t velo2_get_vpid(velo2_port_t *port);

/* Connects to a mailbox, which must be open. VELO2_MCADDR_PACK(group) as the node connects to
 * the mailboxes with that VPID on all nodes of the group and leaves out those that are not
 * open. A message goes to all of them; velo2_try_send sends it to none if one of them is full. */
velo2_ret_t velo2_connect(velo2_port_t *port, velo2_connection_t *con, velo2_nodeid_t node, velo2_vpid_t vpid);
velo2_ret_t velo2_disconnect(velo2_port_t *port, velo2_connection_t *con);

/* Sends a message of 1 to 120 bytes. velo2_send waits while the mailbox is full. */
velo2_ret_t velo2_send(velo2_connection_t *con, const void *msg, unsigned len, uint8_t tag, uint8_t mtt);
velo2_ret_t velo2_try_send(velo2_connection_t *con, const void *msg, unsigned len, uint8_t tag, uint8_t mtt);

/* Take the next message; size is the size of buf. len, source, tag and mtt may be NULL.
 * velo2_recv waits for a message, velo2_probe_recv does not. A message that does not fit buf is
 * lost: the result is VELO2_RET_INV_MSG, and len is its length. */
velo2_ret_t velo2_recv(velo2_port_t *port, void *buf, unsigned size, uint32_t *len, uint32_t *source, uint8_t *tag,
		       uint8_t *mtt);
velo2_ret_t velo2_probe_recv(velo2_port_t *port, void *buf, unsigned size, uint32_t *len, uint32_t *source, uint8_t *tag,
			     uint8_t *mtt);

/* Returns VELO2_RET_SUCCESS if a message has arrived, else VELO2_RET_NO_MSG. */
velo2_ret_t velo2_probe(velo2_port_t *port);

/* exnet's own, for programs that wait for several things at once. velo2_arm makes the two
 * descriptors of velo2_descriptors readable when something arrives from now on; it returns 0 if
 * something is there already. Read nothing from them. After they were readable, take what has
 * arrived, and call it again. velo2_ended takes a peer that has ended, for a program that calls
 * velo2_probe_recv only: after VELO2_RET_NO_MSG all that the peer sent was read. It returns 0 if
 * there is none. velo2_has_room returns whether the mailbox has room. */
void velo2_descriptors(velo2_port_t *port, int fds[2]);
int velo2_arm(velo2_port_t *port);
int velo2_ended(velo2_port_t *port, uint32_t *source);
int velo2_has_room(velo2_connection_t *con);

/* Returns a result in words. */
const char *velo2_strerror(velo2_ret_t ret);

#ifdef __cplusplus
}
#endif
#endif
