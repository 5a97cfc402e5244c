// hostile.c: a peer that makes a connection as it should, and then sends what it likes. It costs
// that connection only. hostile [SEED]
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pair.h"

static struct side victim;
static struct fid_pep *pep;
static union address at;

static velo2_port_t box;
static RMA2_Port port;
static RMA2_NLA nla; // of memory of the attacker
static uint8_t *memory, target[4096], into[8192];

struct attacker {
	int fd;
	velo2_connection_t to;
	uint32_t id; // of the victim's endpoint
};

static uint64_t state;

static uint64_t any(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static int tcp(void)
{
	int fd = socket(at.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	must(fd >= 0 && connect(fd, &at.sa, exfi_addr_len(&at)) == 0);
	return fd;
}

static struct cm_head greeting(enum cm_type type)
{
	return (struct cm_head){.magic = CM_MAGIC, .version = CM_VERSION, .type = (uint8_t)type, .node = (uint16_t)velo2_get_nodeid(&box),
				.velo = (uint16_t)velo2_get_vpid(&box), .rma = rma2_get_vpid(port), .id = 4711};
}

static struct attacker join(void)
{
	struct attacker x = {.fd = tcp()};
	struct cm_head h = greeting(CM_REQUEST), answer;
	struct fi_eq_cm_entry e;
	ssize_t len;
	must(write(x.fd, &h, sizeof(h)) == sizeof(h));
	must(side_event(&victim, &e, sizeof(e), &len) == FI_CONNREQ);
	side_endpoint(&victim, e.info);
	fi_freeinfo(e.info);
	must(fi_accept(victim.ep, NULL, 0) == 0);
	must(recv(x.fd, &answer, sizeof(answer), MSG_WAITALL) == sizeof(answer) && answer.type == CM_ACCEPT);
	x.id = answer.id;
	must(velo2_connect(&box, &x.to, answer.node, answer.velo) == VELO2_RET_SUCCESS);
	h = greeting(CM_READY);
	must(write(x.fd, &h, sizeof(h)) == sizeof(h));
	must(side_event(&victim, &e, sizeof(e), &len) == FI_CONNECTED);
	return x;
}

static void leave(struct attacker *x)
{
	uint8_t m[VELO_MAX];
	struct fi_cq_err_entry err = {0};
	struct fi_cq_data_entry done;
	must(fi_close(&victim.ep->fid) == 0);
	victim.ep = NULL;
	for (ssize_t n; (n = fi_cq_read(victim.cq, &done, 1)) != -FI_EAGAIN;)
		if (n == -FI_EAVAIL)
			must(fi_cq_readerr(victim.cq, &err, 0) == 1);
	uint32_t event;
	struct fi_eq_cm_entry e;
	while (fi_eq_read(victim.eq, &event, &e, sizeof(e), 0) > 0)
		;
	while (velo2_probe_recv(&box, m, sizeof(m), NULL, NULL, NULL, NULL) == VELO2_RET_SUCCESS)
		;
	close(x->fd);
	velo2_disconnect(&box, &x->to);
}

static void post(struct attacker *x, uint8_t op, uint8_t flags, uint16_t credit, const void *body, size_t n)
{
	uint8_t m[VELO_MAX];
	struct head h = {x->id, credit, op, flags};
	memcpy(m, &h, HEAD);
	if (n > 0)
		memcpy(m + HEAD, body, n);
	for (int i = 0; velo2_try_send(&x->to, m, (unsigned)(HEAD + n), 0, 0) != VELO2_RET_SUCCESS; i++) {
		must(i < 1000000);
		(void)fi_cq_read(victim.cq, NULL, 0);
		uint8_t read[VELO_MAX];
		(void)velo2_probe_recv(&box, read, sizeof(read), NULL, NULL, NULL, NULL);
	}
}

static void drive(void)
{
	for (int i = 0; i < 20; i++)
		(void)fi_cq_read(victim.cq, NULL, 0);
}

static bool lives(void)
{
	return of(victim.ep, struct ep, fid)->state == CONNECTED;
}

// breaks sends one message, which must end the connection.
static void breaks(const char *what, uint8_t op, uint8_t flags, uint16_t credit, const void *body, size_t n)
{
	struct attacker x = join();
	must(fi_recv(victim.ep, into, 100, NULL, 0, NULL) == 0);
	post(&x, op, flags, credit, body, n);
	drive();
	if (lives()) {
		fprintf(stderr, "hostile: %s was believed\n", what);
		exit(1);
	}
	leave(&x);
}

static void lies(void)
{
	struct begin b = {.kind = K_SEND, .length = 10, .size = 0};
	uint8_t room[INLINE] = {0};
	struct chunk c = {.nla = nla, .after = 64, .size = 64};
	struct credit ring = {1};
	struct done d = {0, 0};
	breaks("an unknown operation", 77, 0, 0, room, 10);
	breaks("operation 0", 0, 0, 0, room, 10);
	breaks("credit for nothing", OP_MSG, 0, 1, room, 10);
	breaks("immediate data of 4 bytes", OP_MSG, F_DATA, 0, room, 4);
	breaks("a short begin", OP_BEGIN, 0, 0, room, sizeof(b) - 1);
	breaks("kind 0", OP_BEGIN, 0, 0, room, sizeof(b));
	memcpy(room, &b, sizeof(b));
	breaks("11 bytes of 10", OP_BEGIN, 0, 0, room, sizeof(b) + 11);
	breaks("a piece of nothing", OP_PIECE, 0, 0, room, 10);
	breaks("an empty piece", OP_PIECE, 0, 0, NULL, 0);
	breaks("a chunk of nothing", OP_CHUNK, 0, 0, &c, sizeof(c));
	breaks("a short chunk", OP_CHUNK, 0, 0, &c, sizeof(c) - 1);
	b.kind = K_RESULT;
	breaks("an answer to nothing", OP_BEGIN, 0, 0, &b, sizeof(b));
	b = (struct begin){.kind = K_SEND, .length = 64, .nla = 0x123456789, .size = 64};
	breaks("memory that is not there", OP_BEGIN, 0, 0, &b, sizeof(b));
	b = (struct begin){.kind = K_SEND, .length = UINT64_MAX, .nla = nla, .size = UINT32_MAX};
	breaks("4 GiB of memory", OP_BEGIN, 0, 0, &b, sizeof(b));
	breaks("room in a ring that is not used", OP_CREDIT, 0, 0, &ring, sizeof(ring));
	breaks("short credit", OP_CREDIT, 0, 0, &ring, 7);
	breaks("an end of nothing", OP_DONE, 0, 0, &d, sizeof(d));
	breaks("a short end", OP_DONE, 0, 0, &d, 7);
	breaks("a short grant", OP_GRANT, 0, 0, room, sizeof(struct grant) - 1);
	b = (struct begin){.kind = K_SEND, .length = 64};
	breaks("a message that was placed", OP_BEGIN, F_PLACED, 0, &b, sizeof(b));
	b = (struct begin){.kind = K_WRITE, .length = 64, .key = 1, .nla = nla, .size = 64};
	breaks("bytes of a write that was placed", OP_BEGIN, F_PLACED, 0, &b, sizeof(b));
}

// flood sends more messages than the window, more reads than may wait, and more grants than there
// are.
static void flood(void)
{
	struct attacker x = join();
	for (int i = 0; i <= WINDOW && lives(); i++)
		post(&x, OP_MSG, 0, 0, "x", 1);
	drive();
	must(!lives());
	leave(&x);
	x = join();
	struct begin b = {.kind = K_READ, .length = 8, .key = 1};
	for (int i = 0; i < 20000 && lives(); i++) {
		b.cookie = (uint32_t)i;
		post(&x, OP_BEGIN, 0, 0, &b, sizeof(b));
	}
	drive();
	must(!lives());
	leave(&x);
	x = join();
	struct grant g = {.key = 1, .gate = 1, .rights = GRANT_WRITE};
	for (int i = 0; i <= GRANTS && lives(); i++)
		post(&x, OP_GRANT, 0, 0, &g, sizeof(g));
	drive();
	must(!lives());
	leave(&x);
}

// elsewhere: an endpoint hears its peer only, also when another one names it.
static void elsewhere(void)
{
	struct attacker x = join();
	velo2_port_t other;
	velo2_connection_t to;
	struct head h = {x.id, 0, OP_CLOSE, 0};
	must(velo2_open(&other) == VELO2_RET_SUCCESS);
	must(velo2_connect(&other, &to, VELO2_ADDR_NODE(x.to.dest.raw), VELO2_ADDR_VPID(x.to.dest.raw)) == VELO2_RET_SUCCESS);
	must(velo2_send(&to, &h, HEAD, 0, 0) == VELO2_RET_SUCCESS);
	must(velo2_send(&to, "abc", 3, 0, 0) == VELO2_RET_SUCCESS);
	drive();
	must(lives());
	must(velo2_close(&other) == VELO2_RET_SUCCESS);
	drive();
	must(lives());
	leave(&x);
}

// nonsense sends bytes of chance, most of them with a number that is right.
static void nonsense(void)
{
	struct attacker x = join();
	long broken = 0;
	for (int i = 0; i < 4000; i++) {
		uint8_t body[INLINE];
		for (size_t k = 0; k < sizeof(body); k++)
			body[k] = any() % 3 ? 0 : (uint8_t)any();
		uint8_t op = (uint8_t)(any() % 20 ? 1 + any() % 8 : any());
		size_t n = any() % 2 ? sizeof(struct begin) : any() % (INLINE + 1);
		if (op == OP_BEGIN) {
			struct begin b;
			memcpy(&b, body, sizeof(b));
			b.kind = (uint8_t)(1 + any() % 4);
			b.length = any() % 8 ? any() % 9000 : any();
			b.key = any() % 3;
			b.addr = any() % 8 ? any() % sizeof(target) : any();
			b.nla = any() % 8 ? nla + any() % 5000 : any();
			b.size = any() % 2 ? 0 : any() % 8 ? (uint32_t)b.length : (uint32_t)any();
			memcpy(body, &b, sizeof(b));
		}
		if (op == OP_CHUNK) {
			struct chunk c = {.nla = any() % 8 ? nla + any() % 5000 : any(), .after = any() % 3, .size = (uint32_t)(any() % 5000)};
			memcpy(body, &c, sizeof(c));
		}
		post(&x, op, (uint8_t)(any() % 3 ? any() % 4 : any() % 16), any() % 50 ? 0 : (uint16_t)any(), body, n);
		if (any() % 2)
			(void)fi_recv(victim.ep, into, any() % sizeof(into), NULL, 0, NULL);
		if (any() % 4 == 0)
			(void)fi_write(victim.ep, target, any() % 4096, NULL, 0, any() % 100, 1, NULL);
		if (any() % 4 == 0)
			(void)fi_read(victim.ep, into, any() % 4096, NULL, 0, any() % 100, 1, NULL);
		if (any() % 4 == 0)
			(void)fi_send(victim.ep, target, any() % 4096, NULL, 0, NULL);
		struct fi_cq_data_entry done;
		struct fi_cq_err_entry err = {0};
		for (ssize_t got; (got = fi_cq_read(victim.cq, &done, 1)) != -FI_EAGAIN;)
			if (got == -FI_EAVAIL)
				must(fi_cq_readerr(victim.cq, &err, 0) == 1);
		if (!lives()) {
			broken++;
			leave(&x);
			x = join();
		}
	}
	leave(&x);
	printf("%ld of them broke the connection\n", broken);
}

// strangers say nonsense while they connect, or nothing.
static void strangers(void)
{
	uint32_t event;
	struct fi_eq_cm_entry e;
	int silent[2 * CM_BACKLOG];
	for (int i = 0; i < 300; i++) {
		struct cm_head h = greeting(i % 2 ? CM_REQUEST : CM_READY);
		int fd = tcp();
		uint8_t *bytes = (uint8_t *)&h;
		if (i % 3)
			bytes[any() % 8] = (uint8_t)any();
		(void)!write(fd, &h, any() % 2 ? sizeof(h) : any() % sizeof(h));
		close(fd);
		while (fi_eq_read(victim.eq, &event, &e, sizeof(e), 0) > 0) {
			must(event == FI_CONNREQ && fi_reject(pep, e.info->handle, NULL, 0) == 0);
			fi_freeinfo(e.info);
		}
	}
	for (int i = 0; i < 2 * CM_BACKLOG; i++) {
		silent[i] = tcp();
		must(fi_eq_read(victim.eq, &event, &e, sizeof(e), 0) == -FI_EAGAIN);
	}
	must(of(pep, struct pep, fid)->waiting <= CM_BACKLOG);
	struct attacker x = join(); // there is room for an honest one
	leave(&x);
	for (int i = 0; i < 2 * CM_BACKLOG; i++)
		close(silent[i]);
	while (fi_eq_read(victim.eq, &event, &e, sizeof(e), 0) > 0)
		;
	// Somebody else's mailbox, or none.
	int fd = tcp();
	struct cm_head h = greeting(CM_REQUEST);
	h.velo = 255;
	ssize_t len;
	must(write(fd, &h, sizeof(h)) == sizeof(h));
	must(side_event(&victim, &e, sizeof(e), &len) == FI_CONNREQ);
	side_endpoint(&victim, e.info);
	fi_freeinfo(e.info);
	must(fi_accept(victim.ep, NULL, 0) == -FI_ECONNREFUSED);
	must(fi_close(&victim.ep->fid) == 0);
	victim.ep = NULL;
	close(fd);
}

int main(int argc, char **argv)
{
	struct fid_mr *mr;
	RMA2_Region *region;
	state = argc > 1 ? strtoull(argv[1], NULL, 0) : 88172645463325252ull;
	must(velo2_open(&box) == VELO2_RET_SUCCESS && rma2_open(&port) == RMA2_SUCCESS);
	memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(rma2_register(port, memory, 8192, &region) == RMA2_SUCCESS && rma2_get_nla(region, 0, &nla) == RMA2_SUCCESS);
	side_open(&victim);
	pep = side_listen(&victim, &at);
	must(fi_mr_reg(victim.domain, target, sizeof(target), FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL) == 0);
	lies();
	flood();
	elsewhere();
	strangers();
	nonsense();
	must(fi_close(&mr->fid) == 0 && fi_close(&pep->fid) == 0);
	side_close(&victim);
	must(rma2_unregister(port, region) == RMA2_SUCCESS);
	must(rma2_close(port) == RMA2_SUCCESS && velo2_close(&box) == VELO2_RET_SUCCESS);
	munmap(memory, 8192);
	puts("done");
	return 0;
}
