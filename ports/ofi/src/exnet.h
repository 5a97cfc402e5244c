// exnet.h: the objects of the provider, and what its files call of each other.
//
//	fabric ── lock ── domain ── a VELO mailbox, an RMA port
//	   │                 ├── cq, cntr, mr, srx
//	   │                 └── ep ── cm (TCP: to connect, and to see the peer's end)
//	   └── eq ◀── events of cm and pep
//
// One lock for each fabric guards all of it; functions whose name ends in _locked want it held,
// as do all that have no API name. Nothing waits with the lock, except for the node while two
// endpoints connect.
#ifndef EXFI_H
#define EXFI_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include <rma2.h>
#include <velo2.h>

#include "list.h"
#include "state.h"
#include "wire.h"

#define of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

enum {
	IOVS = 4,
	TX_SIZE = 256,
	RX_SIZE = 256,
	SIZE_LIMIT = 65536,
	CQ_SIZE = 1024,
	RING_ROOM = 960 << 20, // of the 1 GiB of a port: for all rings of a domain
	SHARES = 128,          // a ring has at most such a share of what is left,
	RING_LEAST = 2 * FAR_CHUNK, // or this: the largest chunk fits, wherever the last one has ended
};

// FI_MR_BASIC and FI_MR_SCALABLE, at whose names the headers of libfabric 2 warn.
enum { MR_BASIC = 1, MR_SCALABLE = 2 };

#define PROTOCOL (1u << 31 | 0x45584e) // FI_PROV_SPECIFIC, which libfabric 2 does not have

extern struct fi_provider exfi_provider;
#define WARN(sub, ...) FI_WARN(&exfi_provider, FI_LOG_##sub, __VA_ARGS__)
#define INFO(sub, ...) FI_INFO(&exfi_provider, FI_LOG_##sub, __VA_ARGS__)

// Tunables (FI_EXNET_...), read when the provider is loaded.
extern struct settings {
	size_t pieces; // up to so many bytes a message goes by VELO alone
	size_t ring;   // bytes of an endpoint's ring
	size_t far_ring; // the same to a peer on another host, and of the landing from there
	char *iface;   // only this interface
	int direct;    // large messages within a host are read in the sender's program
} exfi_settings;

union address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage room;
};

struct fabric {
	struct fid_fabric fid;
	struct list link; // of all fabrics
	pthread_mutex_t lock;
	unsigned uses;
	struct list domains, eqs, cms, peps;
	// This process is a child of the one that opened it: all in it has ended here. It is no
	// state, for nothing comes after it.
	bool child;
};

struct domain {
	struct fid_domain fid;
	struct list link;
	struct fabric *fabric;
	unsigned uses;
	// FI_MR_BASIC: addresses are virtual, and the provider chooses keys. It is opened so, and
	// that does not change: no state.
	bool virt, own_keys;
	// The node has ended, or this process is a child: the end, one step from the only
	// other state. The endpoints have states of their own, and drain in it.
	bool dead;
	velo2_port_t velo;
	RMA2_Port rma;
	unsigned idle; // calls of progress since the RMA port was looked at
	int fds[3];    // readable when the mailbox or the RMA port has something
	struct ep **eps;
	uint32_t eps_room, next_id;
	struct list active; // endpoints that have something to do
	struct list getting; // endpoints whose GETs run
	size_t ring_room;   // bytes for more rings
	struct list cqs;    // all completion queues
	struct list gates;  // of grants that have ended, through which something may yet come
	struct list rings;  // of endpoints that were closed, whose peers may yet read
	unsigned rings_count;
	struct mr **mrs;    // by key, a hash table with open addressing
	size_t mr_room, mr_count;
	uint64_t next_key;
};

// A peer's program, as this process reads it.
struct source {
	pid_t pid;
	uint64_t at, word;
	bool reads; // the kernel lets it, as was seen while they connected: no state
};

struct mr {
	struct fid_mr fid;
	struct domain *domain;
	uint8_t *at;
	size_t size;
	uint64_t access, base; // base: the address of the first byte for peers
	struct cntr *cntr;     // counts what peers write; or NULL
};

// Completions.
struct cq {
	struct fid_cq fid;
	struct list link; // in domain->cqs
	struct domain *domain;
	unsigned uses;
	enum fi_cq_format format;
	enum fi_wait_obj wait_obj;
	struct fi_cq_tagged_entry *ring;
	size_t room, limit, first, count; // room is a power of two
	struct list errors;
	uint64_t taken; // completions
	int poll_fd, event_fd;
	bool asleep;   // somebody may sleep on poll_fd: what its reader does, and no state
	bool signaled; // a message of fi_cq_signal to fi_cq_sread
	unsigned empty; // reads in a row that found nothing
};

struct cntr {
	struct fid_cntr fid;
	struct domain *domain;
	unsigned uses;
	uint64_t value, errors;
};

// A receive that was posted.
struct rx {
	struct rx *next;
	struct iovec iov[IOVS];
	unsigned count;
	size_t size;
	uint64_t flags;
	void *context;
};

struct rx_queue {
	struct rx *first, **last, *free;
	size_t count, limit;
};

struct srx {
	struct fid_ep fid;
	struct domain *domain;
	unsigned uses;
	struct rx_queue queue;
};

// An operation to be sent.
struct tx {
	struct list link;
	enum kind kind;
	enum stage stage; // tx_step writes it
	// How it completes, and how its bytes go: no states, for none changes once it has begun.
	bool quiet, deliver; // quiet: no completion; deliver: complete when received
	bool direct;         // all of its bytes are read where they are
	struct iovec iov[IOVS];
	unsigned count, iov_at;
	size_t iov_off, size, sent;
	uint64_t data, addr, key, flags;
	bool has_data;
	uint32_t cookie, seq; // seq: ep->sent after its last message
	uint64_t after;       // the position in the ring after its last chunk; 0: none is in the ring
	size_t got;           // of a read
	void *context;
	struct mr *mr; // of a result: what is read
	uint8_t copy[INLINE];
};

struct ring {
	struct list link;
	uint8_t *mem;
	size_t size;
	RMA2_Region region;
	RMA2_NLA nla;
	uint64_t head, tail; // bytes ever written; freed
};

// What an endpoint receives: the message that is under way.
struct inbound {
	// active: there is one. discard: its bytes belong nowhere, for their memory is not there
	// any more. Both end with the message; the endpoint's state says what may happen next.
	bool active, discard;
	uint8_t kind;
	struct rx *rx;
	struct tx *read;
	uint8_t *at; // of a write
	struct mr *mr;
	uint64_t length, got, data, stored;
	uint32_t cookie, error;
	bool has_data;
};

struct held {
	uint32_t len;
	uint8_t bytes[VELO_MAX];
};

// A chunk that the node GETs from a peer on another host.
struct get {
	uint64_t nla, theirs, after; // the positions behind it in the peer's ring, and in the landing
	uint8_t *at;
	uint32_t size;
	enum { GET_WAITS, GET_RUNS, GET_DONE, GET_FAILED } state;
};

// How this process copies to and from the peer's program: the grants that it has.
struct way {
	uint64_t gate;
	struct grant grants[GRANTS];
	unsigned count;
};

struct ep {
	struct fid_ep fid;
	struct domain *domain;
	struct fi_info *info;
	struct eq *eq;
	struct cm *cm;
	struct cq *tx_cq, *rx_cq;
	struct cntr *cntr[4]; // of FI_SEND, FI_RECV, FI_READ, FI_WRITE
	struct srx *srx;
	bool tx_selective, rx_selective; // how it was bound, which does not change: no states
	uint64_t tx_flags, rx_flags;
	enum state state; // state.c writes it; ep_on makes its steps
	int peer_end;     // of the receives that are left: why, if the peer has closed or died; or 0
	int bound_fd; // of a passive endpoint, to connect from
	// What the peer is, and can do, as it said while they connected: no states, for they decide
	// how bytes go, and not what may happen next.
	bool far;    // it is on another host
	bool direct; // it reads this program
	// word is random: by it the peer knows this process, and that the connection stands.
	// writes is 1 while this process writes to the peer's memory.
	uint64_t word, writes;
	struct source source;
	bool places; // it knows grants, and this process has had room for their gates
	bool closes; // it says CM_CLOSE
	uint32_t far_chunk; // the largest that the peer takes from another host
	struct gate *gate; // of those that the peer has; or NULL
	struct way way;
	uint32_t id, peer_id;
	uint16_t node, velo_vpid, rma_vpid;
	velo2_connection_t velo;
	RMA2_Handle rma;
	struct list active; // in domain->active
	// Out.
	struct list queue, replies; // not sent yet
	struct list waiting;        // reads and writes, for their answers
	struct list sends;          // sent and not complete, in the order in which they were posted
	struct list shown;          // answers that the peer reads in this program
	struct list free;
	struct tx *current; // has begun
	size_t queued, limit, reply_count;
	uint32_t sent, acked; // messages that need credit
	uint64_t posted;      // all messages
	struct tx *cookies[OUTSTANDING];
	uint32_t cookie_gen, cookies_used;
	struct ring ring;
	struct done owed[OUTSTANDING];
	unsigned owed_first, owed_count;
	// What is to be sent waits for a message of the peer; or for room, or its next turn, of
	// which nobody tells.
	enum { OUT_PEER, OUT_SELF } waits;
	bool owe_credit; // a debt, as owed: OP_CREDIT is to be sent
	// In.
	uint32_t used, told; // of the peer's messages
	uint64_t heard, last; // of all of its messages; last: how many it has sent, or UINT64_MAX: it has not said
	uint64_t ring_used, ring_told;
	struct rx_queue rxq;
	struct inbound in;
	struct held *held; // WINDOW of them
	struct ring landing;
	struct get gets[WINDOW]; // announced, the oldest first
	unsigned gets_first, gets_count, gets_posted, gets_running, gets_landed;
	struct list getting; // in domain->getting
	unsigned held_first, held_count;
	union address local, peer;
};

// TCP between two endpoints, or a request that was not accepted yet.
struct cm {
	struct fid fid; // FI_CLASS_CONNREQ
	struct list link;
	struct fabric *fabric;
	struct eq *eq;   // of a request: that of its passive endpoint
	struct ep *ep;
	struct pep *pep; // that has accepted it; or NULL, if that was closed since
	int fd;
	enum state state; // of a request: ARRIVING or OFFERED; DOWN: the endpoint has it
	unsigned awaits; // so often it is still waited for what the peer had sent; 0: as long as it lasts
	size_t have;
	struct cm_head head; // as received
	uint8_t in[sizeof(struct cm_head) + CM_DATA];
	uint8_t out[CM_DATA];
	size_t out_len;
};

struct pep {
	struct fid_pep fid;
	struct list link; // in fabric->peps
	struct fabric *fabric;
	struct fi_info *info;
	struct eq *eq;
	int fd, timer;
	unsigned waiting; // connections that were not accepted yet
	union address local;
	// NOT: fi_listen was not called. LATER: there was no descriptor or memory for a connection.
	// The socket is not watched, and the timer has it tried again.
	enum { ACCEPTS_NOT, ACCEPTS, ACCEPTS_LATER } accepts;
};

struct event {
	struct list link;
	uint32_t event;
	bool error;
	size_t size;
	struct fi_info *info; // of a request: nobody has it but this event
	struct fi_eq_err_entry err;
	uint8_t bytes[sizeof(struct fi_eq_cm_entry) + CM_DATA];
};

struct eq {
	struct fid_eq fid;
	struct list link; // in fabric->eqs
	struct fabric *fabric;
	unsigned uses;
	struct list events;
	int poll_fd, event_fd; // -1: they are the parent's
	bool signaled; // event_fd is readable, as its descriptor says itself: no state
	uint8_t err_data[CM_DATA];
};

static inline void lock(struct fabric *f)
{
	pthread_mutex_lock(&f->lock);
}

static inline void unlock(struct fabric *f)
{
	pthread_mutex_unlock(&f->lock);
}

// addr.c: which addresses are the node's.
struct device {
	char name[32];
	union address address;
	size_t speed;
};
size_t exfi_devices(struct device *list, size_t room);
socklen_t exfi_addr_len(const union address *a);
bool exfi_addr_from(union address *a, const void *from, size_t len);
bool exfi_node_runs(void);

// info.c
int exfi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints,
		 struct fi_info **out);

// fabric.c, domain.c, fork.c
int exfi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **out, void *context);
int exfi_domain(struct fid_fabric *fid, struct fi_info *info, struct fid_domain **out, void *context);
bool exfi_fork_init(void);
void exfi_fork_add(struct fabric *f);
void exfi_fork_remove(struct fabric *f);

// progress.c: what has arrived is worked off, and what waits is sent on.
void progress(struct domain *d);
// arm makes the domain's descriptors tell of what arrives from now on. It returns false if
// something is there already.
bool arm(struct domain *d);
// take_ends works off what has arrived, and then the ends of peers that are known.
void take_ends(struct domain *d);
void activate(struct ep *ep);

// mr.c

extern struct fi_ops_mr exfi_mr_ops;
// mr_find returns where size bytes at addr of a key are, or NULL.
struct mr *mr_find(struct domain *d, uint64_t key, uint64_t addr, uint64_t size, uint64_t access, uint8_t **at);

// cq.c, cntr.c
int exfi_cq_open(struct fid_domain *fid, struct fi_cq_attr *attr, struct fid_cq **out, void *context);
bool cq_full(const struct cq *cq);
// cq_wake_all has whoever sleeps at a completion queue of the domain look again.
void cq_wake_all(struct domain *d);
void cq_add(struct cq *cq, void *context, uint64_t flags, size_t len, void *buf, uint64_t data);
void cq_error(struct cq *cq, void *context, uint64_t flags, int error, size_t len, size_t lost);
bool cq_trywait(struct cq *cq);
int exfi_cntr_open(struct fid_domain *fid, struct fi_cntr_attr *attr, struct fid_cntr **out, void *context);
void cntr_add(struct cntr *c, bool error);

// eq.c
int exfi_eq_open(struct fid_fabric *fid, struct fi_eq_attr *attr, struct fid_eq **out, void *context);
bool eq_trywait(struct eq *eq);
void eq_cm_event(struct eq *eq, uint32_t event, fid_t fid, struct fi_info *info, const void *data, size_t len);
void eq_error(struct eq *eq, fid_t fid, int error, const void *data, size_t len);
// eq_forget removes the events of an object that is closed, and ends the requests that they tell
// of.
void eq_forget(struct eq *eq, fid_t fid);

// cm.c, pep.c
void cm_work(struct eq *eq);
void cm_free(struct cm *cm);
int cm_send(struct cm *cm, enum cm_type type, const struct ep *ep, const void *data, size_t len);
struct cm *cm_new(struct fabric *f, struct eq *eq, int fd, uint32_t events);
void cm_accept(struct pep *pep);
extern struct fi_ops_cm exfi_ep_cm;
extern struct fi_ops_ep exfi_ep_ops;
int exfi_pep(struct fid_fabric *fid, struct fi_info *info, struct fid_pep **out, void *context);
int cm_getname(const union address *a, void *addr, size_t *len);

// ep.c
int exfi_endpoint(struct fid_domain *fid, struct fi_info *info, struct fid_ep **out, void *context);
int ep_connect_ports(struct ep *ep, const struct cm_head *peer);
// ep_on makes the step of an event, and does what belongs to it. The error is what operations end
// with. It returns false if there is no such step.
bool ep_on(struct ep *ep, enum input what, int error);
// ep_on_data is ep_on, with what the peer's program has said to this one.
bool ep_on_data(struct ep *ep, enum input what, int error, const void *data, size_t len);

// srx.c
int exfi_srx_open(struct fid_domain *fid, struct fi_rx_attr *attr, struct fid_ep **out, void *context);
struct rx *rx_post(struct rx_queue *q, const struct iovec *iov, size_t count, void *context, uint64_t flags);
struct rx *rx_take(struct rx_queue *q);
void rx_free(struct rx_queue *q, struct rx *rx);
void rx_init(struct rx_queue *q, size_t limit);
void rx_clear(struct rx_queue *q);


// msg.c: the calls of programs.
extern struct fi_ops_msg exfi_msg_ops;
extern struct fi_ops_rma exfi_rma_ops;

// out.c
struct tx *tx_new(struct ep *ep);
void tx_free(struct ep *ep, struct tx *tx);
void tx_push(struct ep *ep);
// tx_skip goes n bytes on.
void tx_skip(struct tx *tx, size_t n);
void tx_complete(struct ep *ep, struct tx *tx, int error);
// tx_submit queues an operation and sends what can be sent.
void tx_submit(struct ep *ep, struct tx *tx);
bool out_owe(struct ep *ep, uint32_t cookie, uint32_t error);
// used returns whether the peer has used all messages of an operation that was sent: it has what
// they announced, too.
static inline bool used(const struct ep *ep, const struct tx *tx)
{
	return (int32_t)(ep->acked - tx->seq) >= 0;
}
// sends_complete completes the sends that have ended, the first that was posted first.
void sends_complete(struct ep *ep);
bool out_idle(const struct ep *ep);
bool out_post(struct ep *ep, enum op op, uint8_t flags, const void *a, size_t alen, const void *b, size_t blen, bool credit);

// ring.c
// ring_open makes a ring of at most size bytes: less, if the domain has many. If no room is left,
// it takes that of rings which nothing is in. It returns false without memory. A ring that is made
// once more continues at its positions.
bool ring_open(struct domain *d, struct ring *r, size_t size);
void ring_close(struct domain *d, struct ring *r);
// ring_keep gives a ring that others may yet use to the domain. It may fail: then it stays.
void ring_keep(struct domain *d, struct ring *r);
void *ring_take(struct ring *r, size_t size);

// direct.c
// direct_open returns whether this process may read the peer's.
bool direct_open(struct source *s, const struct cm_head *peer);
// direct_writes returns whether the peer may be writing to this process's memory, from looks at
// its process and at the descriptor of it.
bool direct_writes(const struct source *s, int process);
// direct_process returns a descriptor of the peer's process, or -1.
int direct_process(const struct source *s);
bool direct_read(const struct source *s, void *to, uint64_t n, uint64_t from);

// place.c
// place_waits returns whether a write or read is to be copied, and what was sent before it is soon
// worked off: it begins then.
bool place_waits(const struct ep *ep, const struct tx *tx);
// place copies the next bytes of a write or read, if the peer has granted that. It returns false if
// it is to be called again; else the stage of the operation says what follows.
bool place(struct ep *ep, struct tx *tx);
// place_granted notes what the peer grants. It returns false on a breach.
bool place_granted(struct ep *ep, const uint8_t *body, uint32_t n);
// place_offer grants a region to the peer, if both can do that.
void place_offer(struct ep *ep, const struct mr *mr);
// place_revoke ends all grants of a region, and waits until no peer copies. It returns false if one
// still may.
bool place_revoke(struct domain *d, const struct mr *mr);
void place_down(struct ep *ep);
// place_drop frees what an endpoint of a child after fork has.
void place_drop(struct ep *ep);
void place_close(struct domain *d);

// get.c
// get_expect begins the GET of a chunk that a message has announced. It returns false on a breach.
// Without memory the endpoint ends.
bool get_expect(struct ep *ep, const struct chunk *c);
// get_head returns the oldest chunk, or NULL, and get_free frees it.
const struct get *get_head(const struct ep *ep);
void get_free(struct ep *ep);
// get_news takes the notifications of the RMA port: ends of GETs and of peers. It returns whether
// there was one.
bool get_news(struct domain *d);
// get_lost ends all GETs: the node has ended.
void get_lost(struct domain *d);
void get_end(struct ep *ep);

// in.c
// in_message works off a message for an endpoint. It returns false if it has to be held.
bool in_message(struct ep *ep, const uint8_t *bytes, uint32_t len);
// in_announced begins to get the chunk that a message from another host announces, if it does. It
// returns false on a breach.
bool in_announced(struct ep *ep, const uint8_t *bytes, uint32_t len);
void in_drain(struct ep *ep);
// rx_fail ends a receive with an error.
void rx_fail(struct ep *ep, struct rx *rx, int error);
// in_abort ends the read whose answer is under way, and in_end all that was to be received.
void in_abort(struct ep *ep, int error);
void in_end(struct ep *ep, int error);

#endif
