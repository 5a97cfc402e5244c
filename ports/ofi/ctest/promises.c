// promises.c: what libfabric's pages promise of calls that few programs make.
#include "pair.h"

static struct side a, b;

static struct {
	struct fi_eq_cm_entry cm;
	uint8_t room[CM_DATA];
} event;

// asks has a connect to b, and returns once b can be told.
static struct fid_pep *asks(void)
{
	union address at;
	struct fid_pep *pep = side_listen(&b, &at);
	side_endpoint(&a, a.info);
	must(fi_connect(a.ep, &at, "hello", 5) == 0);
	uint32_t what;
	while (fi_eq_read(b.eq, &what, &event, sizeof(event), FI_PEEK) < 0)
		must(fi_eq_read(a.eq, &what, &event, sizeof(event), FI_PEEK) == -FI_EAGAIN);
	return pep;
}

// told is asks, and b's program has the request.
static struct fid_pep *told(void)
{
	ssize_t len;
	struct fid_pep *pep = asks();
	must(side_event(&b, &event, sizeof(event), &len) == FI_CONNREQ);
	return pep;
}

static void refused(void)
{
	struct fi_eq_err_entry err = {0};
	ssize_t len;
	must(side_event(&a, &event, sizeof(event), &len) == 0 && len == -FI_EAVAIL);
	must(fi_eq_readerr(a.eq, &err, 0) == sizeof(err) && err.err == FI_ECONNREFUSED);
	must(fi_close(&a.ep->fid) == 0);
	a.ep = NULL;
}

static void accepted(void)
{
	ssize_t len;
	must(fi_accept(b.ep, NULL, 0) == 0);
	must(side_event(&a, &event, sizeof(event), &len) == FI_CONNECTED);
	must(side_event(&b, &event, sizeof(event), &len) == FI_CONNECTED && event.cm.fid == &b.ep->fid);
	must(fi_close(&a.ep->fid) == 0 && fi_close(&b.ep->fid) == 0);
	a.ep = b.ep = NULL;
}

// A program may close a passive endpoint as soon as it has the request that it has waited for. One
// that it was not told of is refused.
static void listener_closes(void)
{
	must(fi_close(&asks()->fid) == 0);
	refused();
	must(fi_close(&told()->fid) == 0);
	side_endpoint(&b, event.cm.info);
	fi_freeinfo(event.cm.info);
	accepted();
	struct fid_pep *pep = told();
	side_endpoint(&b, event.cm.info);
	fi_freeinfo(event.cm.info);
	must(fi_close(&pep->fid) == 0);
	accepted();
}

// A request that a program never answers ends with its fabric.
static void never_answered(void)
{
	side_open(&b);
	must(fi_close(&told()->fid) == 0);
	fi_freeinfo(event.cm.info);
	side_close(&b);
	refused();
}

// An event of the program's own says what the program likes, also after its endpoint was closed.
static void own_event(void)
{
	uint64_t mine = 7;
	struct fi_eq_entry own = {.context = &mine, .data = 7};
	ssize_t len;
	side_endpoint(&a, a.info);
	own.fid = &a.ep->fid;
	must(fi_eq_write(a.eq, FI_NOTIFY, &own, sizeof(own), 0) == sizeof(own));
	must(fi_close(&a.ep->fid) == 0);
	a.ep = NULL;
	must(side_event(&a, &event, sizeof(event), &len) == 0 || ((struct fi_eq_entry *)&event)->context == &mine);
}

// An endpoint may be opened with FI_INJECT for all of its calls: then their buffers are the
// program's at once, as far as they are small enough, and large ones go as they do without.
static void injects(void)
{
	enum { MANY = 2 * WINDOW, LARGE = 100000 };
	static uint8_t got[LARGE], large[LARGE];
	struct fi_cq_data_entry e;
	struct fid_mr *mr;
	uint64_t word, written = 0;
	a.info->tx_attr->op_flags = FI_INJECT;
	pair_connect(&a, &b);
	must(fi_mr_reg(b.domain, &written, sizeof(written), FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL) == 0);
	for (uint64_t i = 0; i < MANY; i++) { // more than go without credit
		word = i;
		must(fi_send(a.ep, &word, sizeof(word), NULL, 0, NULL) == 0);
	}
	word = 77;
	must(fi_write(a.ep, &word, sizeof(word), NULL, 0, 0, 1, NULL) == 0);
	must(fi_send(a.ep, large, LARGE, NULL, 0, NULL) == 0);
	word = UINT64_MAX;
	for (uint64_t i = 0; i < MANY; i++) {
		must(fi_recv(b.ep, &word, sizeof(word), NULL, 0, NULL) == 0);
		must(turn(&b, &a, &e) == 1 && e.len == sizeof(word) && word == i);
		word = UINT64_MAX;
	}
	must(fi_recv(b.ep, got, LARGE, NULL, 0, NULL) == 0);
	must(turn(&b, &a, &e) == 1 && e.len == LARGE);
	for (int i = 0; i < MANY + 2; i++)
		must(turn(&a, &b, &e) == 1);
	must(written == 77);
	must(fi_close(&mr->fid) == 0);
}

enum { READ = 300000 };

static uint8_t region[READ], into[READ];

// reads has b read a's region in a's program, and returns when a has answered.
static struct fid_mr *reads(void)
{
	struct fid_mr *mr;
	pair_connect(&a, &b);
	must(fi_mr_reg(a.domain, region, READ, FI_REMOTE_READ, 0, 1, 0, &mr, NULL) == 0);
	must(fi_read(b.ep, into, READ, NULL, 0, 0, 1, NULL) == 0);
	while (list_empty(&of(a.ep, struct ep, fid)->shown))
		must(fi_cq_read(a.cq, NULL, 0) == -FI_EAGAIN);
	return mr;
}

static void both_close(struct fid_mr *mr)
{
	must(fi_close(&mr->fid) == 0 && fi_close(&a.ep->fid) == 0 && fi_close(&b.ep->fid) == 0);
	a.ep = b.ep = NULL;
}

// A region may be closed once the peer's program says that it has read it, by whatever way: the
// connection goes on.
static void closed_when_read(void)
{
	struct fi_cq_data_entry e;
	struct fid_mr *mr = reads();
	must(turn(&b, NULL, &e) == 1 && (e.flags & FI_READ));
	must(fi_close(&mr->fid) == 0);
	must(fi_mr_reg(a.domain, region, READ, FI_REMOTE_READ, 0, 1, 0, &mr, NULL) == 0);
	must(fi_recv(b.ep, into, 8, NULL, 0, NULL) == 0 && fi_inject(a.ep, "eight by", 8, 0) == 0);
	must(turn(&b, &a, &e) == 1 && memcmp(into, "eight by", 8) == 0);
	both_close(mr);
}

// A read whose bytes the peer takes back as it shuts down fails. A message behind its answer that
// was complete by then is received.
static void complete_behind(void)
{
	struct fi_cq_data_entry e;
	ssize_t len;
	struct fid_mr *mr = reads();
	must(fi_send(a.ep, "eight by", 8, NULL, 0, NULL) == 0);
	must(turn(&a, NULL, &e) == 1 && (e.flags & FI_SEND));
	must(fi_shutdown(a.ep, 0) == 0);
	must(fi_recv(b.ep, into, 8, NULL, 0, NULL) == 0);
	must(turn(&b, NULL, &e) == -FI_EAVAIL && failure(&b) == FI_ECONNABORTED);
	must(turn(&b, NULL, &e) == 1 && e.len == 8 && memcmp(into, "eight by", 8) == 0);
	must(side_event(&b, &event, sizeof(event), &len) == FI_SHUTDOWN);
	must(side_event(&a, &event, sizeof(event), &len) == FI_SHUTDOWN);
	both_close(mr);
}

int main(void)
{
	side_open(&a);
	never_answered();
	side_open(&b);
	listener_closes();
	own_event();
	closed_when_read();
	complete_behind();
	injects();
	side_close(&a);
	side_close(&b);
	puts("done");
	return 0;
}
