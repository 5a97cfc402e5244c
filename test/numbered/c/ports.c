/* ports.c: numbered words between the ports of two processes, by VELO and by RMA, both ways.
 *
 *   ports END CONNS FIRST SEED PLANT
 *
 * END is 0 at one process and 1 at the other. Each prints "at ..." for every connection, then
 * "ready"; it reads the lines of the other one, moves the words, prints "sum CONNS BYTES WRONG" as
 * numbered.c does, and receives until there is another line: the other end may still need its
 * ports, and wait for the slots of a connection that this end has given up as wrong.
 *
 * Stream FIRST + 2 * i is the messages of connection i, FIRST + 2 * i + 1 its transfers. PORT
 * connections share a mailbox, and a port of the RMA unit. A transfer takes a slot of the receiver,
 * who says when it is free again: every third is a GET of the receiver's, the others are PUTs of
 * the sender's.
 *
 * PLANT has end 0 send something wrong on its first connection: velo-swap, velo-drop, rma-swap,
 * rma-drop; - is nothing. With velo-drop end 0 begins the transfers of that connection only when
 * all else is over, and the other end has nothing left but to receive them. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "numbered.h"
#include "random.h"
#include "rma2.h"
#include "velo2.h"

enum { PORT = 4, SLOTS = 2, SLOT = 64 << 10, MAX_MESSAGES = 64 << 10, MAX_TRANSFERS = 256 << 10, STALL = 120 };
enum { OFFER = 1, FREE = 2 }; /* classes of notifications: a slot is to be fetched, and it is free */

enum { WRONG = 1, BROKEN = 2 };        /* it goes on, and what comes is not checked; it is given up */

/* Where the other end of a connection is. */
struct place {
	unsigned node, velo, rma;
	unsigned long long nla;
};

struct transfer {
	uint32_t len;
	int here; /* it has arrived */
};

static struct conn {
	struct place peer;
	velo2_connection_t velo;
	RMA2_Handle rma;
	uint64_t velo_len, velo_sent; /* what this end sends */
	uint64_t rma_len, rma_sent;
	unsigned next_out, next_in;   /* numbers of transfers */
	int busy[SLOTS];              /* at the sender: not free yet */
	struct transfer in[SLOTS];
	struct checker velo_in, rma_in;
	RMA2_Region *region;
	RMA2_NLA nla;
	uint8_t *mem; /* SLOTS slots to send from, and SLOTS to receive in */
	int bad; /* WRONG, BROKEN */
} *conns;

static int nconns, nports, end, planted;
static velo2_port_t *boxes;
static RMA2_Port *units;
static uint64_t rnd;
static const char *plant;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "ports: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* How much goes on a stream: both ends know. */
static uint64_t length_of(struct numbered s, uint64_t limit)
{
	uint64_t x = numbered_word(s, 0);

	x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
	return limit / 2 + (x >> 32) % (limit / 2);
}

static struct numbered out_of(int conn) { return (struct numbered){(uint32_t)conn, end}; }

static int spoils(const char *what, const struct conn *c) { return end == 0 && c == conns && strcmp(plant, what) == 0; }

/* Whether a fault is to be planted now, on a stream that is at so many bytes. */
static int spoil(const char *what, const struct conn *c, uint64_t at)
{
	if (planted || at < 256 || !spoils(what, c))
		return 0;
	return planted = 1;
}

/* The size for what carries a fault of this kind: two whole words can be swapped in it. */
static uint32_t size_for(const char *what, const struct conn *c, uint32_t n)
{
	return spoils(what, c) ? (n + 23) & ~7u : n;
}

static void swap(uint8_t *b)
{
	uint8_t w[8];

	memcpy(w, b, 8);
	memcpy(b, b + 8, 8);
	memcpy(b + 8, w, 8);
}

static void wrong(struct conn *c, struct checker *in)
{
	if (!c->bad)
		checker_tell(in);
	c->bad |= WRONG;
}

static void fault(struct conn *c, struct checker *in, const char *what)
{
	if (!c->bad) {
		printf("fault connection %u %s, byte %llu: %s\n", in->s.conn, in->s.down ? "down" : "up", (unsigned long long)in->right, what);
		fflush(stdout);
	}
	c->bad |= BROKEN;
}

/* ---- messages ---- */

static int send_message(struct conn *c)
{
	uint8_t b[VELO2_MAX_PAYLOAD];
	uint64_t left = c->velo_len - c->velo_sent;
	unsigned n = (unsigned)(1 + (random64(&rnd) >> 30) % sizeof b);

	if (left == 0)
		return 0;
	n = size_for("velo-swap", c, n);
	if (n > sizeof b)
		n = sizeof b;
	if (n > left)
		n = (unsigned)left;
	numbered_fill(out_of(c->velo_in.s.conn), b, n, c->velo_sent);
	if (n >= 24 && c->velo_sent % 8 == 0 && spoil("velo-swap", c, c->velo_sent))
		swap(b);
	switch (velo2_try_send(&c->velo, b, n, (uint8_t)(c - conns), 1)) {
	case VELO2_RET_SUCCESS:
		c->velo_sent += n;
		if (spoil("velo-drop", c, c->velo_sent) && c->velo_len - c->velo_sent > 8)
			c->velo_sent += 8;
		return 1;
	case VELO2_RET_TRY_AGAIN:
		return 0;
	default:
		fault(c, &c->velo_in, "velo2_try_send fails");
		return 0;
	}
}

static int receive_message(int port)
{
	uint8_t b[VELO2_MAX_PAYLOAD], tag, type;
	uint32_t len, source;
	velo2_ret_t r = velo2_probe_recv(&boxes[port], b, sizeof b, &len, &source, &tag, &type);

	if (r == VELO2_RET_NO_MSG)
		return 0;
	must(r == VELO2_RET_SUCCESS, "velo2_probe_recv");
	struct conn *c = &conns[tag];
	if (tag >= nconns || tag / PORT != port || source != VELO2_ADDR_PACK(c->peer.node, c->peer.velo) || type != 1) {
		printf("fault port %d has a message of connection %d, type %d, from %x\n", port, tag, type, source);
		conns[port * PORT].bad |= BROKEN;
	} else if (!c->bad && checker_check(&c->velo_in, b, len))
		wrong(c, &c->velo_in);
	return 1;
}

/* ---- transfers ---- */

static int done(const struct conn *c)
{
	int out = c->velo_sent == c->velo_len && c->rma_sent == c->rma_len, in = c->velo_in.right == c->velo_in.len && c->rma_in.right == c->rma_in.len;

	for (int i = 0; i < SLOTS; i++)
		out = out && !c->busy[i];
	return (c->bad & BROKEN) || (out && (in || c->bad));
}

/* Whether nothing is left to do but the transfers of this connection. */
static int last(const struct conn *c)
{
	for (int i = 0; i < nconns; i++)
		if (&conns[i] != c && !done(&conns[i]))
			return 0;
	return c->velo_sent == c->velo_len && c->velo_in.right == c->velo_in.len && c->rma_in.right == c->rma_in.len;
}

static uint8_t *out_slot(const struct conn *c, int slot) { return c->mem + (size_t)slot * SLOT; }
static uint8_t *in_slot(const struct conn *c, int slot) { return c->mem + (size_t)(SLOTS + slot) * SLOT; }

static int tell(struct conn *c, unsigned class, uint32_t len, int slot)
{
	uint64_t v = (uint64_t)(c - conns) << 32 | len | (uint64_t)slot << 31;

	return rma2_post_notification(units[(c - conns) / PORT], c->rma, (RMA2_Class)class, v, RMA2_COMPLETER_NOTIFICATION, 0) == RMA2_SUCCESS;
}

static int send_transfer(struct conn *c)
{
	int slot = (int)(c->next_out % SLOTS);
	uint64_t left = c->rma_len - c->rma_sent;
	uint32_t n = (uint32_t)log_size(&rnd, SLOT);
	RMA2_Port port = units[(c - conns) / PORT];
	int ok;

	if (left == 0 || c->busy[slot])
		return 0;
	if (spoils("velo-drop", c) && !last(c))
		return 0;
	n = size_for("rma-swap", c, n);
	if (n > SLOT)
		n = SLOT;
	if (n > left)
		n = (uint32_t)left;
	numbered_fill(out_of(c->rma_in.s.conn), out_slot(c, slot), n, c->rma_sent);
	if (n >= 24 && c->rma_sent % 8 == 0 && spoil("rma-swap", c, c->rma_sent))
		swap(out_slot(c, slot));
	if (c->next_out % 3 == 2)
		ok = tell(c, OFFER, n, slot);
	else
		ok = rma2_post_put_bt(port, c->rma, c->region, (uint32_t)slot * SLOT, n, c->peer.nla + (RMA2_NLA)(SLOTS + slot) * SLOT,
				      RMA2_COMPLETER_NOTIFICATION, 0) == RMA2_SUCCESS;
	if (!ok) {
		fault(c, &c->rma_in, "an operation of the RMA unit fails");
		return 0;
	}
	c->busy[slot] = 1;
	c->next_out++;
	c->rma_sent += n;
	if (spoil("rma-drop", c, c->rma_sent) && c->rma_len - c->rma_sent > 8)
		c->rma_sent += 8;
	return 1;
}

/* Checks what has arrived, in the order of the transfers, and gives the slots back. */
static int take_transfers(struct conn *c)
{
	int n = 0;

	for (struct transfer *t; t = &c->in[c->next_in % SLOTS], t->here; n++) {
		int slot = (int)(c->next_in % SLOTS);
		if (!c->bad && checker_check(&c->rma_in, in_slot(c, slot), t->len))
			wrong(c, &c->rma_in);
		t->here = 0;
		c->next_in++;
		if (!tell(c, FREE, 0, slot))
			fault(c, &c->rma_in, "rma2_post_notification fails");
	}
	return n;
}

static void arrived(struct conn *c, int slot, uint32_t len)
{
	if (slot < 0 || slot >= SLOTS || len == 0 || len > SLOT || c->in[slot].here)
		fault(c, &c->rma_in, "a transfer into a slot that is not free, or not there");
	else
		c->in[slot] = (struct transfer){len, 1};
}

static int receive_notification(int port)
{
	RMA2_Notification *n;

	if (rma2_noti_probe(units[port], &n) != RMA2_SUCCESS)
		return 0;
	int command = rma2_noti_get_cmd(n);
	struct conn *first = &conns[port * PORT], *c = NULL;
	if (command == RMA2_NOTIFICATION_PUT) {
		uint64_t v = rma2_noti_get_notiput_payload(n);
		int slot = (int)(v >> 31 & 1);
		if (v >> 32 < (uint64_t)nconns && (int)(v >> 32) / PORT == port)
			c = &conns[v >> 32];
		if (c && rma2_noti_get_notiput_class(n) == FREE) {
			if (!c->busy[slot])
				fault(c, &c->rma_in, "a slot is free twice");
			c->busy[slot] = 0;
		} else if (c && rma2_post_get_bt(units[port], c->rma, c->region, (uint32_t)(SLOTS + slot) * SLOT, (uint32_t)v & ~(1u << 31),
						 c->peer.nla + (RMA2_NLA)slot * SLOT, RMA2_COMPLETER_NOTIFICATION, 0) != RMA2_SUCCESS)
			fault(c, &c->rma_in, "rma2_post_get_bt fails");
	} else {
		RMA2_NLA at = rma2_noti_get_local_address(n);
		for (c = first; c < first + PORT && c < conns + nconns; c++)
			if (at >= c->nla + SLOTS * SLOT && at < c->nla + 2 * SLOTS * SLOT)
				break;
		if (c == first + PORT || c == conns + nconns || (command != RMA2_BT_PUT && command != RMA2_GET_BT_RSP))
			c = NULL;
		else {
			int slot = (int)((at - c->nla) / SLOT) - SLOTS;
			arrived(c, slot, rma2_noti_get_total_size(c->nla + (RMA2_NLA)(SLOTS + slot) * SLOT, n));
		}
	}
	if (!c || rma2_noti_get_error(n) || rma2_noti_get_remote_nodeid(n) != c->peer.node || rma2_noti_get_remote_vpid(n) != c->peer.rma)
		fault(c ? c : first, &(c ? c : first)->rma_in, "a notification of an error, or of another connection");
	rma2_noti_free(units[port], n);
	return 1;
}

/* ---- all of it ---- */

static void begin(int first)
{
	nports = (nconns + PORT - 1) / PORT;
	boxes = calloc((size_t)nports, sizeof *boxes);
	units = calloc((size_t)nports, sizeof *units);
	conns = calloc((size_t)nconns, sizeof *conns);
	for (int i = 0; i < nports; i++) {
		must(velo2_open(&boxes[i]) == VELO2_RET_SUCCESS, "velo2_open");
		must(rma2_open(&units[i]) == RMA2_SUCCESS, "rma2_open");
	}
	for (int i = 0; i < nconns; i++) {
		struct conn *c = &conns[i];
		struct numbered v = {(uint32_t)(first + 2 * i), !end}, r = {(uint32_t)(first + 2 * i + 1), !end};
		c->velo_in = (struct checker){.s = v, .len = length_of(v, MAX_MESSAGES)};
		c->rma_in = (struct checker){.s = r, .len = length_of(r, MAX_TRANSFERS)};
		c->velo_len = length_of(out_of(first + 2 * i), MAX_MESSAGES);
		c->rma_len = length_of(out_of(first + 2 * i + 1), MAX_TRANSFERS);
		c->mem = mmap(NULL, 2 * SLOTS * SLOT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		must(c->mem != MAP_FAILED, "mmap");
		must(rma2_register(units[i / PORT], c->mem, 2 * SLOTS * SLOT, &c->region) == RMA2_SUCCESS, "rma2_register");
		must(rma2_get_nla(c->region, 0, &c->nla) == RMA2_SUCCESS, "rma2_get_nla");
		printf("at %u %u %u %llu\n", velo2_get_nodeid(&boxes[i / PORT]), velo2_get_vpid(&boxes[i / PORT]), rma2_get_vpid(units[i / PORT]),
		       (unsigned long long)c->nla);
	}
	char line[16];
	puts("ready");
	fflush(stdout);
	for (int i = 0; i < nconns; i++) {
		struct conn *c = &conns[i];
		struct place *p = &c->peer;
		must(scanf(" at %u %u %u %llu", &p->node, &p->velo, &p->rma, &p->nla) == 4, "the other end's place");
		must(velo2_connect(&boxes[i / PORT], &c->velo, p->node, p->velo) == VELO2_RET_SUCCESS, "velo2_connect");
		must(rma2_connect(units[i / PORT], (RMA2_Nodeid)p->node, (RMA2_VPID)p->rma, RMA2_CONN_DEFAULT, &c->rma) == RMA2_SUCCESS,
		     "rma2_connect");
	}
	must(fgets(line, sizeof line, stdin) != NULL, "the end of the last line");
}

/* Sends what can be sent, unless this end only serves the other one, and receives. */
static int move(unsigned round, int sends)
{
	int moved = 0;

	for (int i = 0; sends && i < nconns; i++)
		if (!(conns[i].bad & BROKEN))
			moved += send_message(&conns[i]) + send_transfer(&conns[i]);
	for (int i = 0; i < nports; i++) /* every other one is read slowly */
		if (i % 2 == 0 || round % 16 == 0)
			for (int k = 0; k < 8; k++)
				moved += receive_message(i) + receive_notification(i);
	for (int i = 0; i < nconns; i++)
		if (i % 4 != 1 || round % 64 == 0)
			moved += take_transfers(&conns[i]);
	return moved;
}

/* To yield would leave the processor to those that spin, for long. */
static void rest(int moved)
{
	static int idle;

	idle = moved ? 0 : idle + 1;
	if (idle > 4)
		usleep(50);
}

static void stalled(struct conn *c)
{
	if (c->velo_in.nwrong || c->velo_in.right < c->velo_in.len)
		wrong(c, &c->velo_in);
	else if (c->rma_in.nwrong || c->rma_in.right < c->rma_in.len)
		wrong(c, &c->rma_in);
	else
		fault(c, &c->rma_in, "no progress for 2m0s");
}

static int told_to_end(void)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	char line[16];

	if (poll(&in, 1, 0) == 0)
		return 0;
	must(fgets(line, sizeof line, stdin) != NULL, "the word to end");
	return 1;
}

int main(int argc, char **argv)
{
	must(argc == 6, "END CONNS FIRST SEED PLANT");
	end = atoi(argv[1]);
	nconns = atoi(argv[2]);
	rnd = (strtoull(argv[4], NULL, 10) + 1) * 0x9e3779b97f4a7c15u + (unsigned)end;
	plant = argv[5];
	must(nconns > 0 && nconns < 256, "CONNS");
	begin(atoi(argv[3]));

	int left = nconns;
	time_t last = time(NULL);
	for (unsigned round = 0; left > 0; round++) {
		int moved = move(round, 1);
		left = nconns;
		for (int i = 0; i < nconns; i++)
			left -= done(&conns[i]);
		rest(moved);
		if (moved)
			last = time(NULL);
		if (time(NULL) - last < STALL)
			continue;
		for (int i = 0; i < nconns; i++)
			if (!done(&conns[i]))
				stalled(&conns[i]);
		left = 0;
	}
	unsigned long long bytes = 0;
	int bad = 0;
	for (int i = 0; i < nconns; i++) {
		bytes += conns[i].velo_in.right + conns[i].rma_in.right;
		bad += conns[i].bad != 0;
	}
	printf("sum %d %llu %d\n", nconns, bytes, bad);
	fflush(stdout);
	for (unsigned round = 0; !told_to_end(); round++)
		rest(move(round, 0));
	for (int i = 0; i < nports; i++) /* what came beside all that was due */
		for (int k = 0; k < 100 && receive_message(i); k++)
			;
	for (int i = 0; i < nports; i++) {
		velo2_close(&boxes[i]);
		rma2_close(units[i]);
	}
	return 0;
}
