/* rma2.h: EXTOLL's RMA unit for programs: PUT and GET between registered memory of two
 * processes, notifications, and locks.
 *
 * Names and values are those that programs for EXTOLL use; this header and the library are
 * exnet's. A port belongs to one thread at a time. See docs/ports.md.
 */
#ifndef LIBRMA2_H
#define LIBRMA2_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The result of every function. */
typedef enum {
	RMA2_SUCCESS = 0,
	RMA2_ERR_ERROR = -1,       /* the node has ended, or another error */
	RMA2_ERR_INV_HANDLE = -2,  /* no such connection */
	RMA2_ERR_INV_PORT = -3,    /* no such port */
	RMA2_ERR_INV_VALUE = -4,   /* a value out of range */
	RMA2_ERR_NO_ROUTE = -5,    /* no such node */
	RMA2_ERR_PORTS_USED = -6,  /* this user has no port left */
	RMA2_ERR_NO_MEM = -7,      /* this memory cannot be registered */
	RMA2_NO_NOTI = -9,         /* there is no notification */
	RMA2_ERR_POLL_EXCEEDED = -10,
	RMA2_ERR_WRONG_ARG = -11,
	RMA2_ERR_NOT_YET = -12,    /* exnet does not implement this */
	RMA2_ERR_NO_DESC_MEM = -13, /* too many notifications not freed */
	RMA2_ERR_NO_MATCH = -15,
	RMA2_ERR_WRONG_CMD = -16,
	RMA2_ERR_NO_DEVICE = -17,  /* no node runs here */
	RMA2_ERR_NO_CONNECT = -18, /* the port is not open, or belongs to another user */
	RMA2_ERR_INVALID_VERSION = -22, /* the node has another version */
	RMA2_ERR_IOCTL = -23,
	RMA2_ERR_MMAP = -24,
	RMA2_ERR_FD = -25,
	RMA2_ERR_MAP = -26,
	RMA2_ERR_DOUBLE_MAP = 27,
	RMA2_ERR_NO_TABLE = 28,    /* the region is not registered */
	RMA2_ERR_NOT_FREE = 29,
	RMA2_ERR_PART = 30,
	RMA2_ERR_ATU = 31,         /* no addresses are left */
	RMA2_ERR_MLOCKLIMIT = 32
} RMA2_ERROR;

typedef uint16_t RMA2_Nodeid;
typedef uint16_t RMA2_VPID;
typedef uint64_t RMA2_NLA;
typedef uint8_t RMA2_Class;

/* Which units write a notification. Bits. */
typedef enum {
	RMA2_NO_NOTIFICATION = 0,
	RMA2_REQUESTER_NOTIFICATION = 1,
	RMA2_RESPONDER_NOTIFICATION = 2,
	RMA2_COMPLETER_NOTIFICATION = 4,
	RMA2_REQCOMPL_NOTIFICATION = 5,
	RMA2_RESPCOMPL_NOTIFICATION = 6,
	RMA2_ALL_NOTIFICATIONS = 7
} RMA2_Notification_Spec;

/* Options of a connection. Bits. */
typedef enum {
	RMA2_CONN_PHYSICAL = 0,
	RMA2_CONN_TC0 = 0,
	RMA2_CONN_TC1 = 1,
	RMA2_CONN_TC2 = 2,
	RMA2_CONN_TC3 = 3,
	RMA2_CONN_RRA = 4, /* addresses name the node's registers */
	RMA2_CONN_IRQ = 8,
	RMA2_CONN_TE = 16,
	RMA2_CONN_DEFAULT = 16
} RMA2_Connection_Options;

typedef enum {
	RMA2_BT_GET = 0,
	RMA2_QW_GET = 1,
	RMA2_BT_PUT = 2,
	RMA2_QW_PUT = 3,
	RMA2_NOTIFICATION_PUT = 5,
	RMA2_IMMEDIATE_PUT = 6,
	RMA2_PUTS = 7, /* rma2_noti_match: any PUT */
	RMA2_GET_BT_RSP = 10,
	RMA2_GET_QW_RSP = 11,
	RMA2_LOCK_REQ = 12,
	RMA2_LOCK_RSP = 13,
	RMA2_GETS = 14, /* rma2_noti_match: any GET */
	RMA2_ANY = 15
} RMA2_Command;

/* Bits. */
typedef enum {
	RMA2_CMD_DEFAULT = 0,
	RMA2_CMD_MC = 1,  /* of PUTs: to all nodes of the multicast group that the connection names as its node */
	RMA2_CMD_NTR = 2, /* a notification for each packet of 496 bytes */
	RMA2_CMD_ERA = 4, /* the Excellerate unit, which exnet lacks */
	RMA2_CMD_EWA = 8
} RMA2_Command_Modifier;

/* The mode of a notification. Bits. */
typedef enum {
	RMA2_NOTI_RRA = 1,
	RMA2_NOTI_IRQ = 2,
	RMA2_NOTI_TE = 4,
	RMA2_NOTI_EWA = 8,
	RMA2_NOTI_NTR = 16,
	RMA2_NOTI_ERA = 32
} RMA2_Notification_Modifier;

/* Which unit refused an operation. Bits. */
typedef enum { RMA2_ERROR_REQ = 1, RMA2_ERROR_RESP = 2, RMA2_ERROR_CMPL = 4 } RMA2_Notification_Error;

typedef enum {
	RMA2_REPLAY_MANUAL = 0,
	RMA2_REPLAY_POST = 1,
	RMA2_REPLAY_NOTI = 2,
	RMA2_REPLAY_CLOSE = 4,
	RMA2_REPLAY_ALL = 7
} RMA2_Replay_Buffer_Mode;

/* A notification: two words, for the rma2_noti_get_ functions. */
typedef struct {
	union {
		uint64_t value;
	} word0;
	union {
		uint64_t value;
	} word1;
} RMA2_Notification;

/* Registered memory: whole pages. */
typedef struct {
	void *start;     /* the first page */
	void *end;       /* the end of the last page; NULL: a page list */
	size_t size;     /* bytes of all pages */
	size_t count;    /* number of pages */
	size_t length;   /* bytes that were asked for */
	RMA2_NLA nla;    /* address of start */
	uint32_t offset; /* of the first byte, in the first page */
} RMA2_Region;

typedef struct rma2_connection RMA2_Connection;
typedef struct rma2_endpoint RMA2_Endpoint;
typedef RMA2_Connection *RMA2_Handle;
typedef RMA2_Endpoint *RMA2_Port;

/* A command, for rma2_post_descriptor. */
typedef struct rma2_descriptor {
	struct rma2_descriptor *next;
	RMA2_Handle handle;
	uint64_t value[3];
} RMA2_Descriptor;

/* Wildcards and flags of the rma2_noti_match functions. */
extern const RMA2_Class RMA2_CLASS_ANY;
extern const RMA2_Nodeid RMA2_NODEID_ANY;
extern const RMA2_VPID RMA2_VPID_ANY;
extern const uint32_t RMA2_LOCK_ANY;
extern const RMA2_NLA RMA2_ANY_NLA;
extern const uint32_t RMA2_DEFAULT_FLAG;
extern const uint32_t RMA2_BLOCK_FLAG;
extern const uint32_t RMA2_MATCH_LAST_NLA_FLAG;

/* Ports and connections. A peer's port must be open, unless the node is the number of a multicast
 * group, for RMA2_CMD_MC. rma2_open_vpid opens the port with a VPID of 32 to 255; 0: any. Ports
 * with the same VPID have the same addresses. */
RMA2_ERROR rma2_open(RMA2_Port *port);
RMA2_ERROR rma2_open_vpid(RMA2_Port *port, RMA2_VPID vpid);
RMA2_ERROR rma2_close(RMA2_Port port);
RMA2_ERROR rma2_connect(RMA2_Port port, RMA2_Nodeid node, RMA2_VPID vpid, RMA2_Connection_Options options, RMA2_Handle *handle);
RMA2_ERROR rma2_disconnect(RMA2_Port port, RMA2_Handle handle);
RMA2_Nodeid rma2_handle_get_node(RMA2_Handle handle);
RMA2_VPID rma2_handle_get_vpid(RMA2_Handle handle);
RMA2_Nodeid rma2_get_nodeid(RMA2_Port port);
RMA2_VPID rma2_get_vpid(RMA2_Port port);
RMA2_Nodeid rma2_get_node_num(RMA2_Port port); /* highest possible node ID */
RMA2_VPID rma2_get_proc_num(RMA2_Port port);   /* number of possible VPIDs */
RMA2_ERROR rma2_set_protectionid(RMA2_Port port, uint16_t id);

/* PUT and GET of 1 byte to 8 MB. The qw forms take addresses and sizes that are multiples of 8.
 * The direct forms take a local address instead of a region. As on hardware, a refused
 * operation returns RMA2_SUCCESS and writes an error notification, even if no notification was
 * asked for. */
RMA2_ERROR rma2_post_put_bt(RMA2_Port port, RMA2_Handle handle, RMA2_Region *src, uint32_t offset, uint32_t size, RMA2_NLA dest,
			    RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier);
RMA2_ERROR rma2_post_put_bt_direct(RMA2_Port port, RMA2_Handle handle, RMA2_NLA src, uint32_t size, RMA2_NLA dest,
				   RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier);
RMA2_ERROR rma2_post_put_qw(RMA2_Port port, RMA2_Handle handle, RMA2_Region *src, uint32_t offset, uint32_t size, RMA2_NLA dest,
			    RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier);
RMA2_ERROR rma2_post_put_qw_direct(RMA2_Port port, RMA2_Handle handle, RMA2_NLA src, uint32_t size, RMA2_NLA dest,
				   RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier);
RMA2_ERROR rma2_post_get_bt(RMA2_Port port, RMA2_Handle handle, RMA2_Region *sink, uint32_t offset, uint32_t size, RMA2_NLA from,
			    RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier);
RMA2_ERROR rma2_post_get_bt_direct(RMA2_Port port, RMA2_Handle handle, RMA2_NLA sink, uint32_t size, RMA2_NLA from,
				   RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier);
RMA2_ERROR rma2_post_get_qw(RMA2_Port port, RMA2_Handle handle, RMA2_Region *sink, uint32_t offset, uint32_t size, RMA2_NLA from,
			    RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier);
RMA2_ERROR rma2_post_get_qw_direct(RMA2_Port port, RMA2_Handle handle, RMA2_NLA sink, uint32_t size, RMA2_NLA from,
				   RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier);
/* PUTs the first count (1 to 8) bytes of value. */
RMA2_ERROR rma2_post_immediate_put(RMA2_Port port, RMA2_Handle handle, uint32_t count, uint64_t value, RMA2_NLA dest,
				   RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier);
/* Writes only notifications, with value and mclass. */
RMA2_ERROR rma2_post_notification(RMA2_Port port, RMA2_Handle handle, RMA2_Class mclass, uint64_t value,
				  RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier);
/* Fetch-compare-and-add on a lock of the peer: if its value is at most compare, add is added. */
RMA2_ERROR rma2_post_lock(RMA2_Port port, RMA2_Handle handle, uint32_t target, uint32_t lock, int32_t compare, int32_t add,
			  RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier);

/* Descriptors: commands prepared once and posted many times. */
RMA2_ERROR rma2_desc_alloc(RMA2_Port port, RMA2_Descriptor **desc);
RMA2_ERROR rma2_desc_free(RMA2_Port port, RMA2_Descriptor *desc);
RMA2_ERROR rma2_desc_query_free(RMA2_Port port, int *num);
RMA2_ERROR rma2_desc_set_put_get(RMA2_Descriptor *desc, RMA2_Handle handle, RMA2_Command command, uint32_t count,
				 RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier, uint64_t read_address,
				 uint64_t write_address);
RMA2_ERROR rma2_desc_set_immediate_put(RMA2_Descriptor *desc, RMA2_Handle handle, RMA2_Notification_Spec spec,
				       RMA2_Command_Modifier modifier, uint32_t count, uint64_t write_address, uint64_t value);
RMA2_ERROR rma2_desc_set_noti_put(RMA2_Descriptor *desc, RMA2_Handle handle, RMA2_Notification_Spec spec,
				  RMA2_Command_Modifier modifier, RMA2_Class mclass, uint64_t value);
RMA2_ERROR rma2_desc_set_lock(RMA2_Descriptor *desc, RMA2_Handle handle, RMA2_Notification_Spec spec,
			      RMA2_Command_Modifier modifier, uint8_t type, uint32_t lock, uint32_t compare, uint32_t add);
RMA2_ERROR rma2_desc_set_notification_value(RMA2_Descriptor *desc, RMA2_Class mclass, uint64_t value);
RMA2_ERROR rma2_post_descriptor(RMA2_Port port, RMA2_Handle handle, RMA2_Descriptor *desc);

/* exnet's own: copy at once between memory of the program, which need not be registered, and
 * registered memory of a peer of this host. There is no notification. RMA2_ERR_NOT_YET: the peer is
 * on another host. RMA2_ERR_NO_TABLE: that is not registered, or not any more. rma2_descriptor is
 * readable when the node has ended, or has news. rma2_arm makes that and rma2_bell readable when
 * a notification arrives from now on; it returns 0 if one is there already. Read nothing from
 * them. rma2_register_fresh is rma2_register_nomalloc, at addresses that no region had before:
 * what comes late for an unregistered one fails. RMA2_ERR_NO_MEM: also of memory that cannot move
 * into the port's. */
RMA2_ERROR rma2_register_fresh(RMA2_Port port, void *address, size_t size, RMA2_Region *region);
RMA2_ERROR rma2_get_now(RMA2_Port port, RMA2_Handle handle, void *to, size_t size, RMA2_NLA from);
RMA2_ERROR rma2_put_now(RMA2_Port port, RMA2_Handle handle, const void *from, size_t size, RMA2_NLA to);
int rma2_descriptor(RMA2_Port port);
int rma2_bell(RMA2_Port port);
int rma2_arm(RMA2_Port port);

/* Notifications. The caller owns a returned notification until rma2_noti_free or rma2_noti_dup. */
RMA2_ERROR rma2_noti_probe(RMA2_Port port, RMA2_Notification **noti);
RMA2_ERROR rma2_noti_get_block(RMA2_Port port, RMA2_Notification **noti);
RMA2_ERROR rma2_noti_match(RMA2_Port port, RMA2_Command cmd, RMA2_Nodeid node, RMA2_VPID vpid, RMA2_Notification_Spec type,
			   RMA2_NLA nla, int flags, RMA2_Notification **noti);
RMA2_ERROR rma2_noti_match_block(RMA2_Port port, RMA2_Command cmd, RMA2_Nodeid node, RMA2_VPID vpid,
				 RMA2_Notification_Spec type, RMA2_NLA nla, int flags, RMA2_Notification **noti);
RMA2_ERROR rma2_noti_noti_match(RMA2_Port port, RMA2_Class mclass, RMA2_Nodeid node, RMA2_VPID vpid, RMA2_Notification **noti);
RMA2_ERROR rma2_noti_noti_match_block(RMA2_Port port, RMA2_Class mclass, RMA2_Nodeid node, RMA2_VPID vpid,
				      RMA2_Notification **noti);
RMA2_ERROR rma2_noti_lock_match(RMA2_Port port, uint32_t lock, RMA2_Nodeid node, RMA2_VPID vpid, RMA2_Notification **noti);
RMA2_ERROR rma2_noti_lock_match_block(RMA2_Port port, uint32_t lock, RMA2_Nodeid node, RMA2_VPID vpid, RMA2_Notification **noti);
RMA2_ERROR rma2_noti_free(RMA2_Port port, RMA2_Notification *noti);
RMA2_ERROR rma2_noti_dup(RMA2_Notification *in, RMA2_Notification *out);
void rma2_noti_dump(RMA2_Notification *noti);
void rma2_noti_fdump(RMA2_Notification *noti, FILE *file);
void rma2_noti_sdump(RMA2_Notification *noti, char *text, int size);

RMA2_Command rma2_noti_get_cmd(RMA2_Notification *noti);
RMA2_Notification_Spec rma2_noti_get_notification_type(RMA2_Notification *noti);
RMA2_Notification_Modifier rma2_noti_get_mode(RMA2_Notification *noti);
uint8_t rma2_noti_get_error(RMA2_Notification *noti);
RMA2_Nodeid rma2_noti_get_remote_nodeid(RMA2_Notification *noti);
RMA2_VPID rma2_noti_get_remote_vpid(RMA2_Notification *noti);
uint64_t rma2_noti_get_local_address(RMA2_Notification *noti); /* of the last packet */
uint32_t rma2_noti_get_size(RMA2_Notification *noti);          /* of the last packet */
uint32_t rma2_noti_get_total_size(RMA2_NLA start, RMA2_Notification *noti);
uint32_t rma2_noti_get_lock_value(RMA2_Notification *noti);
uint32_t rma2_noti_get_lock_number(RMA2_Notification *noti);
uint8_t rma2_noti_get_lock_result(RMA2_Notification *noti);
uint64_t rma2_noti_get_notiput_payload(RMA2_Notification *noti);
uint8_t rma2_noti_get_notiput_class(RMA2_Notification *noti);

/* Memory. rma2_register moves the pages of [address, address+size) into memory that peers can
 * reach; their content and addresses stay. rma2_unregister moves them back. Memory shared with
 * other processes (mmap with MAP_SHARED, shmat) stays where it is: the node copies, which is
 * slower. docs/ports.md explains the effects on other threads and on fork. */
RMA2_ERROR rma2_register(RMA2_Port port, void *address, size_t size, RMA2_Region **region);
RMA2_ERROR rma2_register_nomalloc(RMA2_Port port, void *address, size_t size, RMA2_Region *region);
RMA2_ERROR rma2_register_cached(RMA2_Port port, void *address, size_t size, RMA2_Region **region);
RMA2_ERROR rma2_register_adhoc(RMA2_Port port, void *address, RMA2_Region **region);
/* A page list: count pages of 4096 bytes anywhere in memory, as one range of addresses. pages is
 * the first pointer to one, and stride the bytes to the next. The data begins offset bytes into the
 * first page and has length bytes, which end in the last one. */
RMA2_ERROR rma2_register_pagelist(RMA2_Port port, void *const *pages, size_t count, unsigned stride, uint32_t offset, size_t length,
				  RMA2_Region **region);
RMA2_ERROR rma2_unregister(RMA2_Port port, RMA2_Region *region);
RMA2_ERROR rma2_unregister_nofree(RMA2_Port port, RMA2_Region *region);
RMA2_ERROR rma2_unregister_cached(RMA2_Port port, RMA2_Region *region);
RMA2_ERROR rma2_unregister_adhoc(RMA2_Port port, RMA2_Region *region);
RMA2_ERROR rma2_get_nla(RMA2_Region *region, size_t offset, RMA2_NLA *nla);
RMA2_ERROR rma2_get_va(RMA2_Region *region, size_t offset, void **va);
RMA2_ERROR rma2_get_size(RMA2_Region *region, size_t *size);
RMA2_ERROR rma2_get_page_count(RMA2_Region *region, size_t *count);
int rma2_get_region_contained(RMA2_Region *region, void *start, size_t size);
int rma2_get_region_overlap(RMA2_Region *region, void *start, size_t size);
int rma2_get_region_equal(RMA2_Region *region, void *start, size_t size);

void rma2_serror(RMA2_ERROR error, char *buf, int size);
void rma2_perror(RMA2_ERROR error, char *header);

/* Options of an existing connection. Physical addresses: RMA2_ERR_NOT_YET. */
RMA2_ERROR rma2_request_interrupt(RMA2_Port port, RMA2_Handle handle);
uint32_t rma2_get_interrupt(RMA2_Port port, RMA2_Handle handle);
RMA2_ERROR rma2_request_rra(RMA2_Port port, RMA2_Handle handle);
uint32_t rma2_get_rra(RMA2_Port port, RMA2_Handle handle);
RMA2_ERROR rma2_request_physical_access(RMA2_Port port, RMA2_Handle handle);
uint32_t rma2_get_physical_access(RMA2_Port port, RMA2_Handle handle);
RMA2_ERROR rma2_request_tcs(RMA2_Port port, RMA2_Handle handle, uint32_t request, uint32_t response);
RMA2_ERROR rma2_get_tcs(RMA2_Port port, RMA2_Handle handle, uint32_t *request, uint32_t *response);

/* The notification queue: its size is in bytes, 16 for each notification. */
uint32_t rma2_get_queue_size(RMA2_Port port);
RMA2_ERROR rma2_set_queue_size(RMA2_Port port, uint32_t bytes);
uint32_t rma2_get_queue_segment_size(RMA2_Port port);
RMA2_ERROR rma2_set_queue_segment_size(RMA2_Port port, uint32_t size);

/* The replay buffer of the hardware. It is always empty here. */
void rma2_replay_buffer_drain(RMA2_Port port);
void rma2_set_replay_mode(RMA2_Port port, RMA2_Replay_Buffer_Mode mode);
RMA2_Replay_Buffer_Mode rma2_get_replay_buffer_mode(RMA2_Port port);

#ifdef __cplusplus
}
#endif
#endif
