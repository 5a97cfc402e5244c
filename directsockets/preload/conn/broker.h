/* The client of the broker (SPEC 6): one connection per process, made when it is first needed, and
 * again after it is lost. It waits for nothing but WELCOME.
 *
 * The caller serialises all calls except those of the page (the lock of setup). */
#ifndef DS_BROKER_H
#define DS_BROKER_H

#include "conn/stats.h"

enum {
	DS_HELLO = 1, DS_WELCOME, DS_LISTEN, DS_UNLISTEN, DS_OFFER, DS_WITHDRAW, DS_CLAIM, DS_GRANT, DS_NO_OFFER, DS_REFUSED, DS_FLOW,
};

/* The versions of the messages that this library speaks. HELLO has the oldest as its version and
 * the newest as its id; WELCOME has the one that the broker has chosen. */
enum { DS_OLDEST = 2, DS_NEWEST = 3 };

/* A message, descriptors apart. */
struct ds_message {
	uint8_t type, reason, version; /* version 0: DS_OLDEST */
	uint16_t node;
	uint32_t id, features;
	char program[16];
	struct ds_info info; /* nonce of OFFER, WITHDRAW, GRANT, FLOW; addresses and ports of LISTEN, OFFER, CLAIM, GRANT, FLOW */
	uint64_t cookie;     /* FLOW: of the sender's socket, as the broker has just seen it; 0: a broker that does not say */
	uint32_t interface;  /* LISTEN, OFFER, CLAIM: the index of the one that the socket is bound to, or 0; DS_INTERFACE_UDP */
	bool udp;	     /* ds_broker_show sets DS_INTERFACE_UDP, and in CLAIM DS_INTERFACE_FLOW if the broker knows FLOW */
};
#define DS_INTERFACE_UDP (1u << 31)
#define DS_INTERFACE_FLOW (1u << 30)

enum { DS_MESSAGE = 72 }; /* no message is longer */

/* Writes m to b, of DS_MESSAGE bytes; its length. */
size_t ds_message_put(uint8_t *b, const struct ds_message *m) DS_HIDDEN;
/* Reads a message of n bytes. False: it is none. */
bool ds_message_get(struct ds_message *m, const uint8_t *b, size_t n) DS_HIDDEN;

/* True if there is a broker. Tries to connect, at most once a second; waits: for a moment until it
 * greets. If it does not wait, a later call finds the greeting. */
bool ds_broker_up(bool waits) DS_HIDDEN;
/* Has the broker been connected to a moment ago, and not greeted yet? */
bool ds_broker_greets(void) DS_HIDDEN;
/* Has this process looked for a broker? Any thread. */
bool ds_broker_looked(void) DS_HIDDEN;
/* True if there is no broker, or only the user's own, and the last look for root's was a second
 * ago: then call ds_broker_up. Any thread. */
bool ds_broker_better(void) DS_HIDDEN;
/* True if ds_broker_up has something to do: there is no broker, or it has not been looked at for a
 * second. Any thread. */
bool ds_broker_due(void) DS_HIDDEN;
/* ds_broker_known: there has been a broker, even if it did not answer. ds_broker_absent: why there
 * is none, a reason of the statistics for which ds_is_absent is true. */
bool ds_broker_known(void) DS_HIDDEN;
int ds_broker_absent(void) DS_HIDDEN;
/* Why an offer was refused, by the reason in the broker's message. */
int ds_broker_why(int reason) DS_HIDDEN;
/* May there be a broker in a moment? An agent that was told of this process may be making it, or
 * another process takes the place of the last one. Any thread. */
bool ds_broker_comes(void) DS_HIDDEN;
static inline bool ds_is_absent(int why) { return why == DS_WHY_NO_BROKER || why == DS_WHY_VERSION || why == DS_WHY_SILENT; }
/* Is it a broker's, this one or the peer's, that an offer was not taken? Then it does not count
 * against the offer. */
static inline bool ds_is_brokers(int why) { return ds_is_absent(why) || why == DS_WHY_UNREACHABLE || why == DS_WHY_SWITCHED_OFF; }
/* What the broker's messages report; connected: for the first time, or again. granted takes both
 * descriptors. */
struct ds_broker_notices {
	void (*granted)(const struct ds_message *m, int segment, int bell);
	void (*none)(uint32_t id);
	void (*refused)(uint32_t id, int reason);
	void (*connected)(void);
};
/* Reads the environment; reports to `to` from now on. */
void ds_broker_init(const struct ds_broker_notices *to) DS_HIDDEN;
/* The number of the connection to the broker: a broker forgets what was asked on an earlier one. */
extern uint32_t ds_broker_connections DS_HIDDEN;
static inline uint32_t ds_broker_connection(void) { return __atomic_load_n(&ds_broker_connections, __ATOMIC_RELAXED); }
/* Sends a message about the socket fd, with the proof of it before n more descriptors, at most 2.
 * False and errno: it was not sent. */
bool ds_broker_show(struct ds_message *m, int fd, const int *more, int n) DS_HIDDEN;
/* Sends one without descriptors, or not. */
void ds_broker_send(struct ds_message *m) DS_HIDDEN;

/* Listeners (listeners.c). True if one without a descriptor has to be announced. Loads only, for
 * any thread. */
bool ds_broker_orphans(void) DS_HIDDEN;
/* Announces what has not been announced; the closed listener of the connection fd. */
void ds_broker_announce(void) DS_HIDDEN;
void ds_broker_announce_by(const struct ds_info *info, int fd) DS_HIDDEN;
/* fd listens at addr and port (false: no memory); fd no longer listens. */
bool ds_broker_listen(int fd, const uint8_t *addr, uint16_t port) DS_HIDDEN;
void ds_broker_unlisten(int fd) DS_HIDDEN;
/* An accepted connection may become direct (wait); it has become direct, or never will (decided). A
 * closed listener stays announced for those that may. */
void ds_broker_wait(const struct ds_info *info) DS_HIDDEN;
void ds_broker_decided(const struct ds_info *info) DS_HIDDEN;
/* Is there room for a message to the broker? Also true if that has ended. */
bool ds_broker_room(void) DS_HIDDEN;
/* These return whether the message was sent. */
bool ds_broker_offer(uint32_t id, const struct ds_info *info, int shadow, int segment, int bell) DS_HIDDEN;
bool ds_broker_withdraw(uint32_t id, const uint8_t *nonce) DS_HIDDEN;
bool ds_broker_claim(uint32_t id, const struct ds_info *info, int shadow) DS_HIDDEN;
/* Reads the messages that have arrived, and reports them. */
void ds_broker_read(void) DS_HIDDEN;
/* In the child of a fork: the connection is the parent's. */
void ds_broker_child(void) DS_HIDDEN;

/* The page (SPEC 6.2). Any thread. */
uint32_t ds_page_listeners(uint16_t port) DS_HIDDEN;
/* ds_page_listeners: how many listeners at this port are direct. ds_page_deep: one of them is on
 * another host, to which the fabric leads. */
bool ds_page_deep(uint16_t port) DS_HIDDEN;
uint32_t ds_page_offers(uint32_t bucket) DS_HIDDEN;
/* SPEC 10.4: the broker knows UDP; how many sockets at this port take flows. */
bool ds_page_udp(void) DS_HIDDEN;
uint32_t ds_page_receivers(uint16_t port) DS_HIDDEN;
uint32_t ds_bucket(const struct ds_info *info) DS_HIDDEN;

#endif
