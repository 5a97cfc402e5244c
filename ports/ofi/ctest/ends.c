// ends.c: everything that two endpoints do, at one node. ends [shared]: with shared, from memory
// and into memory that processes share.
#include <sys/mman.h>

#include "pair.h"

enum { ROOM = 3 << 20 };
static uint8_t *from, *into;

static void fill(size_t n, uint8_t seed)
{
	for (size_t i = 0; i < n; i++)
		from[i] = (uint8_t)(i * 7 + seed + (i >> 8));
	memset(into, 0xee, n + 64 < ROOM ? n + 64 : ROOM);
}

static void same(size_t n)
{
	must(memcmp(from, into, n) == 0);
	must(n + 1 > ROOM || into[n] == 0xee);
}

static void one(struct side *a, struct side *b, size_t n, uint64_t flags, bool late)
{
	struct fi_cq_data_entry e;
	struct iovec out[3] = {{from, n / 3}, {from + n / 3, n / 5}, {from + n / 3 + n / 5, n - n / 3 - n / 5}};
	struct iovec in[2] = {{into, n / 2}, {into + n / 2, ROOM - n / 2}};
	struct fi_msg m = {.msg_iov = out, .iov_count = 3, .context = from, .data = 0x1234567890abcdef};
	fill(n, (uint8_t)n);
	if (!late)
		must(fi_recvv(b->ep, in, NULL, 2, 0, into) == 0);
	must(fi_sendmsg(a->ep, &m, flags | FI_COMPLETION) == 0);
	if (late) {
		for (int i = 0; i < 10; i++) {
			must(fi_cq_read(b->cq, NULL, 0) == -FI_EAGAIN);
		}
		must(fi_recvv(b->ep, in, NULL, 2, 0, into) == 0);
	}
	must(turn(b, a, &e) == 1 && e.op_context == into && e.len == n && (e.flags & FI_RECV));
	must(!(flags & FI_REMOTE_CQ_DATA) == !(e.flags & FI_REMOTE_CQ_DATA));
	must(!(flags & FI_REMOTE_CQ_DATA) || e.data == m.data);
	must(turn(a, b, &e) == 1 && e.op_context == from && (e.flags & FI_SEND));
	same(n);
}

static void messages(struct side *a, struct side *b)
{
	static const size_t sizes[] = {0, 1, 8, 47, 48, 49, 104, 105, 111, 112, 113, 500, 1023, 1024, 1025, 4096, 16384, 32767, 32768, 32769, 65536,
				       127999, 128001, 262144, 1000003, 2 << 20};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int how = 0; how < 6; how++)
			one(a, b, sizes[i], (how & 1 ? FI_REMOTE_CQ_DATA : 0) | (how >= 4 ? FI_DELIVERY_COMPLETE : 0), how & 2);
	for (size_t n = 0; n <= INLINE; n++)
		one(b, a, n, n <= INLINE ? FI_INJECT : 0, n & 1);
	must(fi_inject(a->ep, from, INLINE + 1, 0) == -FI_EINVAL);
}

// A receiver that has posted nothing holds a window of messages, and the sender waits.
static void window(struct side *a, struct side *b)
{
	struct fi_cq_data_entry e;
	uint64_t n, got;
	enum { MANY = 200 };
	for (n = 0; n < MANY; n++)
		must(fi_send(a->ep, memcpy(from + 8 * n, &n, 8), 8, NULL, 0, NULL) == 0);
	struct ep *sender = of(a->ep, struct ep, fid), *receiver = of(b->ep, struct ep, fid);
	for (long i = 0; i < 1000 || (i < 100000000 && receiver->held_count < WINDOW); i++) {
		(void)fi_cq_read(b->cq, NULL, 0);
		(void)fi_cq_read(a->cq, NULL, 0);
	}
	must(receiver->held_count == WINDOW && sender->sent - sender->acked == WINDOW);
	for (n = 0; n < MANY; n++) {
		must(fi_recv(b->ep, &got, 8, NULL, 0, NULL) == 0);
		must(turn(b, a, &e) == 1 && e.len == 8 && got == n);
		must(turn(a, b, &e) == 1);
	}
	must(of(b->ep, struct ep, fid)->held_count == 0);
}

static void truncated(struct side *a, struct side *b)
{
	static const size_t sizes[] = {100, 900, 100000};
	struct fi_cq_data_entry e;
	for (size_t i = 0; i < 3; i++) {
		fill(sizes[i], 3);
		must(fi_recv(b->ep, into, 50, NULL, 0, NULL) == 0);
		must(fi_send(a->ep, from, sizes[i], NULL, 0, NULL) == 0);
		must(turn(b, a, &e) == -FI_EAVAIL);
		struct fi_cq_err_entry err = {0};
		must(fi_cq_readerr(b->cq, &err, 0) == 1 && err.err == FI_ETRUNC && err.len == 50 && err.olen == sizes[i] - 50);
		must(turn(a, b, &e) == 1);
		same(50);
	}
}

static void rma(struct side *a, struct side *b)
{
	static const size_t sizes[] = {0, 1, 8, 48, 49, 112, 1024, 1025, 40000, 262144, 1000003};
	struct fi_cq_data_entry e;
	struct fid_mr *mr, *other;
	struct fid_cntr *written;
	uint64_t all = FI_REMOTE_READ | FI_REMOTE_WRITE;
	must(fi_mr_reg(b->domain, into, ROOM, all, 0, 77, 0, &mr, NULL) == 0);
	must(fi_cntr_open(b->domain, &(struct fi_cntr_attr){0}, &written, NULL) == 0);
	must(fi_mr_bind(mr, &written->fid, FI_REMOTE_WRITE) == 0 && fi_mr_enable(mr) == 0);
	must(fi_mr_reg(b->domain, into, 5, all, 0, 77, 0, &other, NULL) == -FI_ENOKEY);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		size_t n = sizes[i];
		fill(n, (uint8_t)i);
		must(fi_write(a->ep, from, n, NULL, 0, 0, 77, from) == 0);
		must(turn(a, b, &e) == 1 && e.op_context == from && (e.flags & FI_WRITE));
		same(n);
		memset(from, 0, n);
		must(fi_read(a->ep, from, n, NULL, 0, 0, 77, from) == 0);
		must(turn(a, b, &e) == 1 && (e.flags & FI_READ));
		same(n);
	}
	// Immediate data.
	fill(300, 9);
	must(fi_writedata(a->ep, from, 300, NULL, 99, 0, 0, 77, NULL) == 0);
	must(turn(a, b, &e) == 1);
	must(turn(b, a, &e) == 1 && e.data == 99 && e.len == 300 && (e.flags & FI_REMOTE_WRITE));
	same(300);
	must(fi_cntr_read(written) == 1 + sizeof(sizes) / sizeof(*sizes) && fi_close(&written->fid) == -FI_EBUSY);
	// Outside, and by another key.
	must(fi_write(a->ep, from, 8, NULL, 0, ROOM - 7, 77, NULL) == 0);
	must(turn(a, b, &e) == -FI_EAVAIL && failure(a) == FI_EACCES);
	must(fi_read(a->ep, from, 8, NULL, 0, UINT64_MAX - 3, 77, NULL) == 0);
	must(turn(a, b, &e) == -FI_EAVAIL && failure(a) == FI_EACCES);
	must(fi_read(a->ep, from, 8, NULL, 0, 0, 78, NULL) == 0);
	must(turn(a, b, &e) == -FI_EAVAIL && failure(a) == FI_EACCES);
	must(fi_close(&mr->fid) == 0 && fi_close(&written->fid) == 0);
	must(fi_write(a->ep, from, 100000, NULL, 0, 0, 77, NULL) == 0);
	must(turn(a, b, &e) == -FI_EAVAIL && failure(a) == FI_EACCES);
	// To be read only.
	must(fi_mr_reg(b->domain, into, 100, FI_REMOTE_READ, 0, 5, 0, &mr, NULL) == 0);
	must(fi_write(a->ep, from, 8, NULL, 0, 0, 5, NULL) == 0);
	must(turn(a, b, &e) == -FI_EAVAIL && failure(a) == FI_EACCES);
	must(fi_close(&mr->fid) == 0);
	one(a, b, 5000, 0, false);
}

// Many in both directions at once, more than may wait for an answer.
static void crowd(struct side *a, struct side *b)
{
	struct side *sides[2] = {a, b};
	struct fid_mr *mr[2];
	struct fi_cq_data_entry e;
	enum { MANY = 600, SIZE = 3000 };
	for (int i = 0; i < 2; i++)
		must(fi_mr_reg(sides[i]->domain, into, ROOM, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr[i], NULL) == 0);
	fill(ROOM - 64, 1);
	memcpy(into, from, ROOM);
	int begun[2] = {0}, ended[2] = {0};
	while (ended[0] < MANY || ended[1] < MANY)
		for (int i = 0; i < 2; i++) {
			if (begun[i] < MANY) {
				ssize_t r = begun[i] % 2 == 0
						    ? fi_read(sides[i]->ep, from + SIZE * begun[i], SIZE, NULL, 0, (uint64_t)(SIZE * begun[i]), 1, NULL)
						    : fi_write(sides[i]->ep, from + SIZE * begun[i], SIZE, NULL, 0, (uint64_t)(SIZE * begun[i]), 1, NULL);
				must(r == 0 || r == -FI_EAGAIN);
				begun[i] += r == 0;
			}
			ssize_t n = fi_cq_read(sides[i]->cq, &e, 1);
			must(n == 1 || n == -FI_EAGAIN);
			ended[i] += n == 1;
		}
	must(memcmp(from, into, ROOM - 64) == 0);
	must(fi_close(&mr[0]->fid) == 0 && fi_close(&mr[1]->fid) == 0);
}

// goes works until all that a side sends is on its way: it may wait for credit.
static void goes(struct side *s)
{
	while (!out_idle(of(s->ep, struct ep, fid)))
		(void)fi_cq_read(s->cq, NULL, 0);
}

// The descriptor of a completion queue is readable when something has come.
static void waits(struct side *a, struct side *b)
{
	struct fi_cq_data_entry e;
	struct fid *fids[1] = {&b->cq->fid};
	int fd, rc;
	must(fi_control(&b->cq->fid, FI_GETWAIT, &fd) == 0);
	for (int i = 0; i < 20; i++) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		must(fi_recv(b->ep, into, 100, NULL, 0, NULL) == 0);
		while (fi_trywait(b->fabric, fids, 1) != 0)
			must(fi_cq_read(b->cq, NULL, 0) == -FI_EAGAIN);
		must(of(b->ep, struct ep, fid)->far || poll(&p, 1, 0) == 0);
		must(fi_inject(a->ep, from, 10, 0) == 0);
		goes(a);
		// Between hosts it may be readable for what is no message: then trywait says so.
		do {
			must(poll(&p, 1, 60000) == 1);
		} while ((rc = fi_trywait(b->fabric, fids, 1)) == 0 && of(b->ep, struct ep, fid)->far);
		must(rc == -FI_EAGAIN);
		must(fi_cq_sread(b->cq, &e, 1, NULL, 60000) == 1 && e.len == 10);
	}
	for (int i = 0; i < 20; i++) {
		fill(100000, (uint8_t)i);
		must(fi_recv(b->ep, into, 100000, NULL, 0, NULL) == 0);
		must(fi_send(a->ep, from, 100000, NULL, 0, NULL) == 0);
		goes(a);
		must(fi_cq_sread(b->cq, &e, 1, NULL, 60000) == 1 && e.len == 100000);
		must(fi_cq_sread(a->cq, &e, 1, NULL, 60000) == 1);
		same(100000);
	}
	must(fi_cq_sread(b->cq, &e, 1, NULL, 20) == -FI_EAGAIN);
	must(fi_cq_signal(b->cq) == 0);
	must(fi_cq_sread(b->cq, &e, 1, NULL, 60000) == -FI_EAGAIN);
}

static void rejected(struct side *a, struct side *b)
{
	union address at;
	struct {
		struct fi_eq_cm_entry cm;
		uint8_t room[CM_DATA];
	} e;
	struct fi_eq_err_entry err = {0};
	uint32_t event;
	ssize_t len;
	struct fid_pep *pep = side_listen(b, &at);
	side_endpoint(a, a->info);
	must(fi_connect(a->ep, &at, NULL, 0) == 0);
	while (fi_eq_read(b->eq, &event, &e, sizeof(e), 0) < 0)
		(void)fi_eq_read(a->eq, &event, &e, sizeof(e), FI_PEEK);
	must(event == FI_CONNREQ);
	must(fi_reject(pep, e.cm.info->handle, "no", 2) == 0);
	fi_freeinfo(e.cm.info);
	must(side_event(a, &e, sizeof(e), &len) == 0 && len == -FI_EAVAIL);
	must(fi_eq_readerr(a->eq, &err, 0) == sizeof(err) && err.err == FI_ECONNREFUSED && err.err_data_size == 2);
	must(fi_close(&a->ep->fid) == 0);
	// Nobody listens.
	must(fi_close(&pep->fid) == 0);
	side_endpoint(a, a->info);
	must(fi_connect(a->ep, &at, NULL, 0) == 0);
	must(side_event(a, &e, sizeof(e), &len) == 0 && len == -FI_EAVAIL);
	err = (struct fi_eq_err_entry){0};
	must(fi_eq_readerr(a->eq, &err, 0) == sizeof(err) && err.err == FI_ECONNREFUSED);
	must(fi_close(&a->ep->fid) == 0);
	a->ep = b->ep = NULL;
}

// What a peer sent before it closed is delivered, also to who posts receives later.
static void closed(struct side *a, struct side *b)
{
	struct fi_cq_data_entry e;
	struct fi_eq_cm_entry cm;
	ssize_t len;
	pair_connect(a, b);
	fill(20000, 1);
	must(fi_send(a->ep, from, 20000, NULL, 0, NULL) == 0);
	must(turn(a, b, &e) == 1);
	must(fi_send(a->ep, from, 20, NULL, 0, NULL) == 0);
	must(turn(a, b, &e) == 1);
	must(fi_close(&a->ep->fid) == 0);
	a->ep = NULL;
	must(fi_cq_read(b->cq, NULL, 0) == -FI_EAGAIN);
	must(fi_recv(b->ep, into, 20000, NULL, 0, NULL) == 0);
	must(turn(b, a, &e) == 1 && e.len == 20000);
	same(20000);
	while (sends(of(b->ep, struct ep, fid)->state))
		must(fi_cq_read(b->cq, NULL, 0) == -FI_EAGAIN);
	must(fi_send(b->ep, from, 20, NULL, 0, NULL) == -FI_ECONNABORTED);
	must(fi_recv(b->ep, into, 100, NULL, 0, NULL) == 0);
	must(turn(b, a, &e) == 1 && e.len == 20);
	must(side_event(b, &cm, sizeof(cm), &len) == FI_SHUTDOWN && cm.fid == &b->ep->fid);
	must(fi_recv(b->ep, into, 100, NULL, 0, NULL) == -FI_ECONNABORTED);
	must(fi_close(&b->ep->fid) == 0);
	b->ep = NULL;
}

// An answer to a read may wait behind a message without a receive when the peer closes: the read
// ends with the peer, and what was sent behind the answer is delivered.
static void answered(struct side *a, struct side *b)
{
	struct fi_cq_data_entry e;
	struct fi_eq_cm_entry cm;
	struct fid_mr *mr;
	ssize_t len;
	pair_connect(a, b);
	fill(100, 9);
	must(fi_mr_reg(b->domain, from, 100, FI_REMOTE_READ, 0, 5, 0, &mr, NULL) == 0);
	must(fi_send(b->ep, from, 10, NULL, 0, NULL) == 0);
	must(turn(b, NULL, &e) == 1);
	must(fi_read(a->ep, into + 50, 20, NULL, 0, 0, 5, NULL) == 0);
	while (of(b->ep, struct ep, fid)->sent < 2) // the message, and the answer
		must(fi_cq_read(b->cq, NULL, 0) == -FI_EAGAIN);
	must(fi_send(b->ep, from + 10, 10, NULL, 0, NULL) == 0);
	must(turn(b, NULL, &e) == 1);
	must(fi_close(&b->ep->fid) == 0);
	b->ep = NULL;
	must(turn(a, NULL, &e) == -FI_EAVAIL && failure(a) == FI_ECONNABORTED);
	for (int i = 0; i < 2; i++) {
		must(fi_recv(a->ep, into + (size_t)i * 10, 10, NULL, 0, NULL) == 0);
		must(turn(a, NULL, &e) == 1 && e.len == 10);
	}
	must(memcmp(from, into, 20) == 0 && into[50] == 0xee);
	must(side_event(a, &cm, sizeof(cm), &len) == FI_SHUTDOWN && cm.fid == &a->ep->fid);
	must(fi_close(&a->ep->fid) == 0 && fi_close(&mr->fid) == 0);
	a->ep = NULL;
}

// Between hosts the end of TCP may overtake what was sent before: that is received all the same.
static void overtaken(struct side *a, struct side *b)
{
	enum { MANY = 90 };
	struct fi_cq_data_entry e;
	struct fi_eq_cm_entry cm;
	uint32_t event = 0;
	uint64_t n;
	pair_connect(a, b);
	for (n = 0; n < MANY; n++) {
		must(fi_recv(b->ep, into + 8 * n, 8, NULL, 0, NULL) == 0);
		must(fi_send(a->ep, memcpy(from + 8 * n, &n, 8), 8, NULL, 0, NULL) == 0);
		must(turn(a, NULL, &e) == 1);
	}
	must(fi_close(&a->ep->fid) == 0);
	a->ep = NULL;
	while (fi_eq_read(b->eq, &event, &cm, sizeof(cm), 0) < 0)
		;
	must(event == FI_SHUTDOWN && cm.fid == &b->ep->fid);
	for (n = 0; n < MANY; n++)
		must(fi_cq_read(b->cq, &e, 1) == 1 && memcmp(into + 8 * n, &n, 8) == 0);
	must(fi_close(&b->ep->fid) == 0);
	b->ep = NULL;
}

// Neither does it have to keep its domain.
static void left(struct side *b)
{
	static struct side c;
	struct fi_cq_data_entry e;
	side_open(&c);
	pair_connect(&c, b);
	fill(20000, 4);
	must(fi_send(c.ep, from, 20000, NULL, 0, NULL) == 0);
	must(turn(&c, b, &e) == 1);
	side_close(&c);
	must(fi_recv(b->ep, into, 20000, NULL, 0, NULL) == 0);
	must(turn(b, NULL, &e) == 1 && e.len == 20000);
	same(20000);
	must(fi_close(&b->ep->fid) == 0);
	b->ep = NULL;
}

// What was posted ends with an error when the program closes the endpoint.
static void cancelled(struct side *a, struct side *b)
{
	struct fi_cq_data_entry e;
	pair_connect(a, b);
	must(fi_recv(a->ep, into, 100, NULL, 0, into) == 0);
	must(fi_recv(a->ep, into, 100, NULL, 0, from) == 0);
	must(fi_cancel(&a->ep->fid, from) == 0);
	must(turn(a, NULL, &e) == -FI_EAVAIL && failure(a) == FI_ECANCELED);
	must(fi_close(&a->ep->fid) == 0);
	must(turn(a, NULL, &e) == -FI_EAVAIL && failure(a) == FI_ECANCELED);
	must(fi_close(&b->ep->fid) == 0);
	a->ep = b->ep = NULL;
}

static void shared(struct side *a, struct side *b)
{
	struct fid_ep *srx;
	struct fi_cq_data_entry e;
	union address at;
	struct fi_eq_cm_entry cm;
	uint32_t event;
	ssize_t len;
	struct fid_pep *pep = side_listen(b, &at);
	side_endpoint(a, a->info);
	must(fi_connect(a->ep, &at, NULL, 0) == 0);
	while (fi_eq_read(b->eq, &event, &cm, sizeof(cm), 0) < 0)
		(void)fi_eq_read(a->eq, &event, &cm, sizeof(cm), FI_PEEK);
	must(fi_srx_context(b->domain, NULL, &srx, NULL) == 0);
	must(fi_endpoint(b->domain, cm.info, &b->ep, NULL) == 0);
	fi_freeinfo(cm.info);
	must(fi_ep_bind(b->ep, &srx->fid, 0) == 0 && fi_ep_bind(b->ep, &b->eq->fid, 0) == 0);
	must(fi_ep_bind(b->ep, &b->cq->fid, FI_TRANSMIT | FI_RECV) == 0 && fi_enable(b->ep) == 0);
	must(fi_accept(b->ep, NULL, 0) == 0);
	must(side_event(a, &cm, sizeof(cm), &len) == FI_CONNECTED);
	must(fi_recv(srx, into, 1000, NULL, 0, into) == 0);
	must(fi_inject(a->ep, from, 7, 0) == 0 && fi_inject(a->ep, from, 8, 0) == 0);
	must(turn(b, a, &e) == 1 && e.len == 7 && e.op_context == into);
	must(fi_recv(srx, into, 1000, NULL, 0, from) == 0);
	must(turn(b, a, &e) == 1 && e.len == 8 && e.op_context == from);
	must(fi_close(&srx->fid) == -FI_EBUSY);
	must(fi_close(&a->ep->fid) == 0 && fi_close(&b->ep->fid) == 0 && fi_close(&srx->fid) == 0 && fi_close(&pep->fid) == 0);
	a->ep = b->ep = NULL;
	while (fi_eq_read(b->eq, &event, &cm, sizeof(cm), 0) > 0)
		;
}

// A large message is read where it is, and only as long as its sender's endpoint is open: then the
// memory may be something else's.
static void direct(struct side *a, struct side *b)
{
	struct fi_cq_data_entry e;
	struct ep *ea, *eb;
	pair_connect(a, b);
	ea = of(a->ep, struct ep, fid);
	eb = of(b->ep, struct ep, fid);
	must(ea->far || ea->source.reads);
	must(ea->far || eb->source.reads);
	one(a, b, 1 << 20, 0, false);
	must(ea->far || (ea->direct && eb->direct && ea->ring.mem == NULL));
	fill(1 << 20, 5);
	must(fi_send(a->ep, from, 1 << 20, NULL, 0, NULL) == 0);
	goes(a);
	for (int i = 0; i < 100; i++)
		must(fi_cq_read(b->cq, NULL, 0) == -FI_EAGAIN);
	bool far = ea->far;
	must(fi_close(&a->ep->fid) == 0);
	a->ep = NULL;
	must(far || (turn(a, NULL, &e) == -FI_EAVAIL && failure(a) == FI_ECANCELED));
	memset(from, 0, ROOM);
	ssize_t r = fi_recv(b->ep, into, 1 << 20, NULL, 0, NULL);
	must(r == 0 || r == -FI_ECONNABORTED);
	if (!far && r == 0)
		must(turn(b, NULL, &e) == -FI_EAVAIL && (failure(b), 1));
	struct fi_eq_cm_entry cm;
	ssize_t len;
	must(far || side_event(b, &cm, sizeof(cm), &len) == FI_SHUTDOWN);
	must(fi_close(&b->ep->fid) == 0);
	b->ep = NULL;
	// It may have arrived, and be cancelled.
	struct side *sides[2] = {a, b};
	for (int i = 0; i < 2; i++)
		for (ssize_t n; (n = fi_cq_read(sides[i]->cq, &e, 1)) != -FI_EAGAIN;)
			must(n == 1 || failure(sides[i]) != 0);
	uint32_t event;
	while (fi_eq_read(b->eq, &event, &cm, sizeof(cm), 0) > 0)
		;
}

// A write or read that the peer has granted once needs nothing of it, until the region is closed.
static void placed(struct side *a, struct side *b)
{
	enum { SIZE = 2500000 };
	uint64_t all = FI_REMOTE_READ | FI_REMOTE_WRITE;
	struct ep *ea = of(a->ep, struct ep, fid), *eb = of(b->ep, struct ep, fid);
	struct fi_cq_data_entry e;
	struct fid_mr *mr, *other;
	must(fi_mr_reg(b->domain, into, ROOM, all, 0, 7, 0, &mr, NULL) == 0);
	must(fi_mr_reg(b->domain, from, ROOM, FI_REMOTE_READ, 0, 8, 0, &other, NULL) == 0);
	// The peer grants as soon as it knows that both are connected, which TCP tells it.
	for (int i = 0; i < 1000 && (i == 0 || (!ea->far && ea->way.count == 0)); i++) {
		must(fi_write(a->ep, from, 200000, NULL, 0, 0, 7, NULL) == 0);
		must(turn(a, b, &e) == 1);
	}
	if (!ea->far) {
		must(ea->way.count == 1 && eb->gate != NULL);
		// The target does nothing.
		fill(SIZE, 3);
		must(fi_write(a->ep, from, SIZE, NULL, 0, 1, 7, into) == 0);
		must(turn(a, NULL, &e) == 1 && e.op_context == into && (e.flags & FI_WRITE));
		must(into[0] == 0xee || into[0] == from[0]);
		must(memcmp(into + 1, from, SIZE) == 0);
		struct iovec parts[3] = {{from, 1000}, {from + 2000, 1 << 20}, {from + (2 << 20), 77}};
		memset(from, 0, ROOM);
		must(fi_readv(a->ep, parts, NULL, 3, 0, 1, 7, NULL) == 0);
		must(turn(a, NULL, &e) == 1 && (e.flags & FI_READ));
		must(memcmp(from, into + 1, 1000) == 0 && memcmp(from + 2000, into + 1001, 1 << 20) == 0);
		must(from[1000] == 0 && memcmp(from + (2 << 20), into + 1001 + (1 << 20), 77) == 0);
		// Of immediate data it hears.
		fill(SIZE, 4);
		must(fi_writedata(a->ep, from, SIZE, NULL, 99, 0, 0, 7, NULL) == 0);
		must(turn(b, a, &e) == 1 && e.data == 99 && e.len == SIZE && (e.flags & FI_REMOTE_WRITE));
		same(SIZE);
		must(turn(a, b, &e) == 1);
		// A message is not overtaken.
		must(fi_send(a->ep, from, 8, NULL, 0, NULL) == 0 && turn(a, NULL, &e) == 1);
		memset(into, 0, 200000);
		must(fi_write(a->ep, from, 200000, NULL, 0, 0, 7, NULL) == 0);
		must(fi_cq_read(a->cq, &e, 1) == -FI_EAGAIN && into[5] == 0);
		must(fi_recv(b->ep, into + 300000, 8, NULL, 0, NULL) == 0);
		must(turn(b, a, &e) == 1 && turn(a, b, &e) == 1);
		must(memcmp(from, into, 200000) == 0);
	}
	// Beyond the region, and against its rights.
	must(fi_write(a->ep, from, 200000, NULL, 0, ROOM - 199999, 7, NULL) == 0);
	must(turn(a, b, &e) == -FI_EAVAIL && failure(a) == FI_EACCES);
	for (int i = 0; i < 2; i++) {
		must(fi_read(a->ep, into, 200000, NULL, 0, 0, 8, NULL) == 0 && turn(a, b, &e) == 1);
		must(fi_write(a->ep, from, 200000, NULL, 0, 0, 8, NULL) == 0);
		must(turn(a, b, &e) == -FI_EAVAIL && failure(a) == FI_EACCES);
	}
	// A write that does not end keeps the region.
	ea->writes = 1;
	must(ea->far || fi_close(&mr->fid) == -FI_EBUSY);
	ea->writes = 0;
	must(fi_close(&mr->fid) == 0 && eb->gate == NULL);
	fill(200000, 5);
	for (int i = 0; i < 2; i++) {
		must(fi_write(a->ep, from, 200000, NULL, 0, 0, 7, NULL) == 0);
		must(turn(a, b, &e) == -FI_EAVAIL && failure(a) == FI_EACCES && into[0] == 0xee);
	}
	must(fi_close(&other->fid) == 0);
}

// The gate of new grants is never where an older one was: those who have its grants would pass.
static void gates(struct side *a, struct side *b)
{
	enum { MANY = 64 };
	struct ep *ea = of(a->ep, struct ep, fid);
	struct fi_cq_data_entry e;
	struct fid_mr *mr;
	uint64_t seen[MANY];
	for (int i = 0; i < MANY && !ea->far; i++) {
		must(fi_mr_reg(b->domain, into, ROOM, FI_REMOTE_WRITE, 0, 7, 0, &mr, NULL) == 0);
		must(fi_write(a->ep, from, 200000, NULL, 0, 0, 7, NULL) == 0 && turn(a, b, &e) == 1);
		seen[i] = ea->way.gate;
		for (int k = 0; k < i; k++)
			must(seen[k] != seen[i]);
		must(fi_close(&mr->fid) == 0);
	}
}

// copied has both sides copy what is large, as where the kernel refuses.
static void copied(struct side *a, struct side *b)
{
	of(a->ep, struct ep, fid)->direct = of(b->ep, struct ep, fid)->direct = false;
	messages(a, b);
	rma(a, b);
}

static uint8_t *memory(int kind)
{
	void *m = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
	must(m != MAP_FAILED);
	return m;
}

int main(int argc, char **argv)
{
	struct side a, b;
	int kind = argc > 1 && strcmp(argv[1], "shared") == 0 ? MAP_SHARED : MAP_PRIVATE;
	from = memory(kind);
	into = memory(kind);
	side_open(&b);
	bool far = other_node();
	side_open(&a);
	rejected(&a, &b);
	cancelled(&a, &b);
	closed(&a, &b);
	answered(&a, &b);
	overtaken(&a, &b);
	left(&b);
	shared(&a, &b);
	direct(&a, &b);
	pair_connect(&a, &b);
	must(of(b.ep, struct ep, fid)->far == far);
	messages(&a, &b);
	window(&a, &b);
	truncated(&a, &b);
	rma(&a, &b);
	crowd(&a, &b);
	placed(&a, &b);
	gates(&a, &b);
	waits(&a, &b);
	copied(&a, &b);
	must(fi_cntr_read(a.cntr) > 0 && fi_cntr_readerr(a.cntr) > 0);
	side_close(&a);
	side_close(&b);
	puts("done");
	return 0;
}
