// waits.c: who waits is told, and what has ended ends nothing else. waits MODE; the modes are in
// the table below.
#define _GNU_SOURCE
#include <signal.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

enum { LONG_MS = 60000 };

static struct side a, b;
static uint8_t from[8 << 20], into[8 << 20];

static struct ep *ep_of(const struct side *s)
{
	return of(s->ep, struct ep, fid);
}

static struct domain *domain_of(const struct side *s)
{
	return of(s->domain, struct domain, fid);
}

// hold waits until a side holds a message for which it has no receive.
static void hold(struct side *s)
{
	while (ep_of(s)->held_count == 0)
		must(fi_cq_read(s->cq, NULL, 0) == -FI_EAGAIN);
}

static bool arms(struct domain *d)
{
	lock(d->fabric);
	bool sleeps = arm(d);
	unlock(d->fabric);
	return sleeps;
}

// A write of which this process copies a part in each turn is waited for by sleep.
static void placing(void)
{
	struct fid_mr *mr;
	struct fi_cq_data_entry e;
	must(fi_mr_reg(b.domain, into, sizeof(into), FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL) == 0);
	must(fi_write(a.ep, from, sizeof(from), NULL, 0, 0, 1, NULL) == 0);
	must(turn(&a, &b, &e) == 1);
	while (ep_of(&a)->way.count == 0) // of the grant
		must(fi_cq_read(a.cq, NULL, 0) == -FI_EAGAIN);
	memset(from, 'p', sizeof(from));
	must(fi_write(a.ep, from, sizeof(from), NULL, 0, 0, 1, NULL) == 0);
	must(fi_cq_sread(a.cq, &e, 1, NULL, LONG_MS) == 1);
	must(memcmp(from, into, sizeof(from)) == 0);
	must(fi_close(&mr->fid) == 0);
}

// Nobody tells of room in a mailbox. So whoever waits for it does not sleep, even if the peer has
// made room since.
static void room(void)
{
	struct ep *ep = ep_of(&a);
	static const uint8_t junk[8] = {0xff, 0xff}; // for no endpoint
	while (velo2_try_send(&ep->velo, junk, sizeof(junk), 0, 0) == VELO2_RET_SUCCESS)
		;
	must(fi_send(a.ep, from, 8, NULL, 0, NULL) == 0);
	must(!out_idle(ep));
	lock(ep->domain->fabric);
	progress(ep->domain);
	unlock(ep->domain->fabric);
	while (!velo2_has_room(&ep->velo))
		must(fi_cq_read(b.cq, NULL, 0) == -FI_EAGAIN);
	must(!out_idle(ep) && !arms(ep->domain));
}

static void *sleeper(void *arg)
{
	static ssize_t slept;
	struct fi_cq_data_entry e;
	(void)arg;
	slept = fi_cq_sread(b.cq, &e, 1, NULL, -1);
	return &slept;
}

// posts has a thread sleep for a message that is here already, and posts the receive at to.
static void posts(struct fid_ep *to)
{
	pthread_t t;
	void *slept;
	struct cq *cq = of(b.cq, struct cq, fid);
	must(fi_inject(a.ep, "x", 1, 0) == 0);
	hold(&b);
	must(pthread_create(&t, NULL, sleeper, NULL) == 0);
	for (bool asleep = false; !asleep; usleep(1000)) {
		lock(cq->domain->fabric);
		asleep = cq->asleep;
		unlock(cq->domain->fabric);
	}
	must(fi_recv(to, into, 8, NULL, 0, NULL) == 0);
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += LONG_MS / 1000;
	must(pthread_timedjoin_np(t, &slept, &end) == 0 && *(ssize_t *)slept == 1);
}

// A message that is here already is received by a thread that sleeps, when another one posts a
// receive.
static void posted(void)
{
	posts(b.ep);
}

// The same, of a receive context that endpoints share.
static void context(void)
{
	struct fid_ep *srx;
	must(fi_srx_context(b.domain, NULL, &srx, NULL) == 0);
	must(fi_ep_bind(b.ep, &srx->fid, 0) == 0);
	posts(srx);
}

// Whoever waits for a counter hears of a receive that ends with the peer.
static void counted(void)
{
	const uint64_t had = fi_cntr_read(b.received);
	must(fi_recv(b.ep, into, 8, NULL, 0, NULL) == 0);
	must(fi_close(&a.ep->fid) == 0);
	must(fi_cntr_wait(b.received, had + 1, LONG_MS) == -FI_EAVAIL);
	must(fi_cntr_readerr(b.received) == 1);
}

// Two completion queues of one domain: whoever sleeps at one of them is not forgotten when a thread
// at the other one takes the bell, and leaves.
static void two(void)
{
	struct fi_cq_attr attr = {.size = 16, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
	struct fid_cq *other;
	struct fi_cq_data_entry e;
	struct pollfd p = {.events = POLLIN};
	must(fi_cq_open(b.domain, &attr, &other, NULL) == 0);
	must(fi_recv(b.ep, into, 8, NULL, 0, NULL) == 0);
	struct fid *fids[1] = {&other->fid};
	while (fi_trywait(b.fabric, fids, 1) != 0)
		;
	must(fi_control(&other->fid, FI_GETWAIT, &p.fd) == 0);
	must(poll(&p, 1, 0) == 0);
	must(fi_inject(a.ep, "1", 1, 0) == 0); // between another thread's progress and its arm
	must(poll(&p, 1, LONG_MS) == 1);
	must(!arms(domain_of(&b)));
	must(fi_cq_read(b.cq, &e, 1) == 1); // that thread takes the message, and leaves
	must(poll(&p, 1, 0) == 1);
	must(fi_close(&other->fid) == 0);
}

// A connection that has ended is not heard of again, though a child has its descriptor, too.
static void shared(void)
{
	struct fi_eq_cm_entry cm;
	ssize_t len;
	uint32_t event;
	int copy = dup(ep_of(&b)->cm->fd); // as a child has it until it calls exec
	must(copy >= 0 && fi_close(&a.ep->fid) == 0);
	a.ep = NULL;
	must(side_event(&b, &cm, sizeof(cm), &len) == FI_SHUTDOWN);
	must(ep_of(&b)->cm == NULL);
	for (int i = 0; i < 10; i++)
		must(fi_eq_read(b.eq, &event, &cm, sizeof(cm), 0) == -FI_EAGAIN);
	struct epoll_event e;
	struct eq *eq = of(b.eq, struct eq, fid);
	must(epoll_wait(eq->poll_fd, &e, 1, 0) == 0);
	close(copy);
}

// What has come before the node ends is received after that.
static void dead(void)
{
	struct fi_cq_data_entry e;
	char line[16];
	must(fi_inject(a.ep, "x", 1, 0) == 0);
	hold(&b);
	puts("connected");
	fflush(stdout);
	must(fgets(line, sizeof(line), stdin) != NULL); // the node has ended
	while (!domain_of(&b)->dead)
		must(fi_cq_read(b.cq, NULL, 0) == -FI_EAGAIN);
	must(ep_of(&b)->state == DRAINING && ep_of(&b)->held_count == 1);
	must(fi_recv(b.ep, into, 8, NULL, 0, NULL) == 0);
	must(fi_cq_read(b.cq, &e, 1) == 1 && e.len == 1 && into[0] == 'x');
}

// The end of a peer is not that of the next one, which has its VPID.
static void stale(void)
{
	struct fi_eq_cm_entry cm;
	ssize_t len;
	velo2_port_t p;
	enum { FIRST = 32, LAST = 255 }; // VPIDs of programs, which are given in turn
	unsigned had = velo2_get_vpid(&domain_of(&a)->velo), last, before = had == FIRST ? LAST : had - 1;
	must(fi_close(&a.ep->fid) == 0);
	a.ep = NULL;
	must(side_event(&b, &cm, sizeof(cm), &len) == FI_SHUTDOWN);
	must(fi_close(&b.ep->fid) == 0);
	b.ep = NULL;
	side_close(&a);
	do { // a VPID is given again when all others were
		must(velo2_open(&p) == VELO2_RET_SUCCESS);
		last = velo2_get_vpid(&p);
		velo2_close(&p);
	} while (last != before);
	side_open(&a);
	must(velo2_get_vpid(&domain_of(&a)->velo) == had);
	pair_connect(&a, &b);
	must(fi_cq_read(b.cq, NULL, 0) == -FI_EAGAIN && ep_of(&b)->state == CONNECTED);
	must(fi_inject(a.ep, "x", 1, 0) == 0);
	hold(&b);
}

// A child closes what its parent has, which goes on.
static void forked(void)
{
	struct fi_eq_cm_entry cm;
	union address at;
	uint32_t event;
	int status;
	struct fid_pep *mute, *pep = side_listen(&b, &at);
	must(fi_passive_ep(b.fabric, b.info, &mute, NULL) == 0);
	must(fi_pep_bind(mute, &b.eq->fid, 0) == 0);
	for (int i = 0; i < 2; i++) { // the second one after the child's end
		side_endpoint(&a, a.info);
		must(fi_connect(a.ep, &at, NULL, 0) == 0);
		while (fi_eq_read(b.eq, &event, &cm, sizeof(cm), 0) < 0)
			must(fi_eq_read(a.eq, &event, &cm, sizeof(cm), FI_PEEK) == -FI_EAGAIN);
		must(event == FI_CONNREQ);
		side_endpoint(&b, cm.info);
		fi_freeinfo(cm.info);
		if (i > 0)
			return;
		pid_t child = fork();
		must(child >= 0);
		if (child == 0) {
			must(fi_listen(mute) == -FI_EOPBADSTATE && fi_listen(pep) == -FI_EOPBADSTATE);
			must(fi_close(&mute->fid) == 0);
			must(fi_close(&b.ep->fid) == 0);
			must(fi_close(&pep->fid) == 0);
			must(fi_eq_read(b.eq, &event, &cm, sizeof(cm), 0) == -FI_EAGAIN);
			while (fcntl(domain_of(&b)->fds[1], F_GETFD) == -1) // the number is this process's now
				must(dup(0) >= 0);
			child = fork();
			must(child >= 0);
			if (child == 0)
				_exit(fcntl(domain_of(&b)->fds[1], F_GETFD) == -1);
			must(waitpid(child, &status, 0) == child && status == 0);
			_exit(0);
		}
		must(waitpid(child, &status, 0) == child && status == 0);
	}
}

static bool readable(struct side *s)
{
	struct fid *fids[] = {&s->eq->fid};
	int fd;
	must(fi_control(&s->eq->fid, FI_GETWAIT, &fd) == 0);
	must(fi_trywait(s->fabric, fids, 1) == 0);
	must(fi_eq_write(s->eq, FI_NOTIFY, "new", 3, 0) == 3); // as another thread does now
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return poll(&p, 1, 0) == 1;
}

// A child has the events that were not read when it began, and what it does with them wakes nobody
// in its parent, and has nobody sleep there.
static void copied(void)
{
	uint32_t event;
	char told[8];
	int go[2], status;
	struct fid *fids[] = {&a.eq->fid};
	must(pipe(go) == 0);
	must(fi_eq_write(a.eq, FI_NOTIFY, "old", 3, 0) == 3);
	pid_t child = fork();
	must(child >= 0);
	if (child == 0) {
		must(read(go[0], told, 1) == 1);
		must(fi_eq_read(a.eq, &event, told, sizeof(told), 0) == 3 && memcmp(told, "old", 3) == 0);
		_exit(0);
	}
	must(fi_eq_read(a.eq, &event, told, sizeof(told), 0) == 3 && memcmp(told, "old", 3) == 0);
	must(readable(&a));
	must(write(go[1], "x", 1) == 1);
	must(waitpid(child, &status, 0) == child && status == 0);
	int fd;
	must(fi_control(&a.eq->fid, FI_GETWAIT, &fd) == 0);
	struct pollfd p = {.fd = fd, .events = POLLIN};
	must(poll(&p, 1, 0) == 1); // its event is still there, and the child has not read that
	must(fi_eq_read(a.eq, &event, told, sizeof(told), 0) == 3 && memcmp(told, "new", 3) == 0);
	if ((child = fork()) == 0)
		_exit(fi_eq_write(a.eq, FI_NOTIFY, "own", 3, 0) == 3 ? 0 : 1);
	must(waitpid(child, &status, 0) == child && status == 0);
	must(fi_trywait(a.fabric, fids, 1) == 0 && poll(&p, 1, 0) == 0);
}

// A listener ends with its process, though a child lives on.
static void orphan(void)
{
	union address at;
	int ends[2], status, fd;
	char c;
	struct fid_pep *pep = side_listen(&b, &at);
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	pid_t child = fork();
	must(child >= 0);
	if (child == 0) {
		close(ends[1]);
		must(write(ends[0], "x", 1) == 1);
		_exit((int)read(ends[0], &c, 1)); // 0 when the parent lets go
	}
	must(read(ends[1], &c, 1) == 1); // it runs
	must(fi_close(&pep->fid) == 0);
	must((fd = socket(at.sa.sa_family, SOCK_STREAM, 0)) >= 0);
	must(connect(fd, &at.sa, exfi_addr_len(&at)) == -1 && errno == ECONNREFUSED);
	close(ends[1]);
	must(waitpid(child, &status, 0) == child && status == 0);
}

// A send that has failed gives its buffer back: the peer, which TCP alone has left, does not read
// what the program writes there since.
static void broken(void)
{
	struct fi_cq_data_entry e;
	struct fi_eq_cm_entry cm;
	uint32_t event;
	must(ep_of(&a)->direct);
	must(fi_send(a.ep, from, 1 << 20, NULL, 0, NULL) == 0);
	must(fi_inject(b.ep, "x", 1, 0) == 0);
	hold(&b);
	hold(&a); // it drains as long as it has this
	must(shutdown(ep_of(&a)->cm->fd, SHUT_RDWR) == 0);
	must(fi_eq_read(a.eq, &event, &cm, sizeof(cm), 0) == -FI_EAGAIN);
	must(fi_cq_read(a.cq, &e, 1) == -FI_EAVAIL && failure(&a) == FI_ECONNABORTED);
	must(ep_of(&a)->state == DRAINING);
	must(fi_eq_read(b.eq, &event, &cm, sizeof(cm), 0) == -FI_EAGAIN);
	must(fi_recv(b.ep, into, 1 << 20, NULL, 0, NULL) == 0);
	must(turn(&b, NULL, &e) == -FI_EAVAIL);
}

// spend takes all descriptors that this process may have. It returns the limit to restore.
static struct rlimit spend(void)
{
	enum { ALL = 512 }; // more than it has
	struct rlimit had, none;
	must(getrlimit(RLIMIT_NOFILE, &had) == 0);
	none = had;
	none.rlim_cur = ALL;
	must(setrlimit(RLIMIT_NOFILE, &none) == 0);
	while (dup(0) >= 0)
		;
	return had;
}

// What is sent to a peer whose TCP has ended, and whose last messages are on their way from another
// host, fails as that to one that has ended. They are waited for without a further descriptor.
static void ending(void)
{
	struct fi_eq_cm_entry cm;
	uint32_t event;
	(void)spend();
	must(ep_of(&b)->far && shutdown(ep_of(&a)->cm->fd, SHUT_RDWR) == 0);
	while (ep_of(&b)->state == CONNECTED)
		must(fi_eq_read(b.eq, &event, &cm, sizeof(cm), 0) == -FI_EAGAIN);
	must(ep_of(&b)->state == ENDING && ep_of(&b)->cm != NULL);
	must(fi_send(b.ep, from, 8, NULL, 0, NULL) == -FI_ECONNABORTED);
}

// What was sent on a connection that is closed is never taken for what is sent on a later one,
// which has the same memory.
static void late(void)
{
	enum { MANY = 66, SIZE = 20000 }; // more than are kept
	struct fid_ep *as[MANY], *bs[MANY];
	struct fi_cq_data_entry e;
	struct fi_eq_cm_entry cm;
	ssize_t len;
	memset(from, 'A', SIZE);
	for (int i = 0; i < MANY; i++) {
		if (i > 0)
			pair_connect(&a, &b);
		as[i] = a.ep;
		bs[i] = b.ep;
		if (i == 0)
			continue;
		must(fi_send(a.ep, from, SIZE, NULL, 0, NULL) == 0);
		must(turn(&a, NULL, &e) == 1); // it is in the ring
		hold(&b);
	}
	must(fi_recv(bs[0], into, SIZE, NULL, 0, NULL) == 0 && fi_send(as[0], from, SIZE, NULL, 0, NULL) == 0);
	must(turn(&a, NULL, &e) == 1);
	for (int i = 0; i < MANY; i++)
		must(fi_close(&as[i]->fid) == 0);
	// The first one comes to know the message before the end: what was given up is no breach.
	must(turn(&b, NULL, &e) == -FI_EAVAIL);
	must(failure(&b) == FI_ECANCELED);
	must(side_event(&b, &cm, sizeof(cm), &len) == FI_SHUTDOWN && cm.fid == &bs[0]->fid);
	pair_connect(&a, &b);
	memset(from, 'N', SIZE);
	must(fi_send(a.ep, from, SIZE, NULL, 0, NULL) == 0);
	for (int i = 1; i < MANY; i++) {
		b.ep = bs[i];
		must(fi_recv(b.ep, into, SIZE, NULL, 0, NULL) == 0);
		if (turn(&b, &a, &e) == 1)
			must(e.len == SIZE && into[0] == 'A' && into[SIZE - 1] == 'A');
		else
			must(failure(&b) == FI_ECANCELED && i < MANY / 2);
	}
}

// A listener without descriptors does not keep those awake who sleep, and takes the connection
// when there is one again.
static void starved(void)
{
	struct fi_eq_cm_entry cm;
	ssize_t len;
	union address at;
	uint32_t event;
	struct fid_pep *pep = side_listen(&b, &at);
	struct pep *p = of(pep, struct pep, fid);
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = p};
	side_endpoint(&a, a.info);
	must(fi_connect(a.ep, &at, NULL, 0) == 0);
	while (ep_of(&a)->state != ASKED)
		must(fi_eq_read(a.eq, &event, &cm, sizeof(cm), 0) == -FI_EAGAIN);
	struct rlimit had = spend();
	for (int i = 0; i < 3; i++) {
		struct pollfd ready = {.fd = of(b.eq, struct eq, fid)->poll_fd, .events = POLLIN};
		must(poll(&ready, 1, LONG_MS) == 1);
		must(fi_eq_read(b.eq, &event, &cm, sizeof(cm), 0) == -FI_EAGAIN);
		must(epoll_ctl(ready.fd, EPOLL_CTL_MOD, p->fd, &e) == -1 && errno == ENOENT); // it is not watched
	}
	must(setrlimit(RLIMIT_NOFILE, &had) == 0);
	must(side_event(&b, &cm, sizeof(cm), &len) == FI_CONNREQ);
	fi_freeinfo(cm.info);
	must(epoll_ctl(of(b.eq, struct eq, fid)->poll_fd, EPOLL_CTL_MOD, p->fd, &e) == 0);
	must(fi_close(&pep->fid) == 0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} modes[] = {
		{"placing", placing}, {"room", room}, {"posted", posted}, {"two", two}, {"shared", shared},
		{"dead", dead}, {"stale", stale}, {"forked", forked}, {"broken", broken}, {"ending", ending},
		{"context", context}, {"counted", counted}, {"late", late}, {"starved", starved}, {"orphan", orphan}, {"copied", copied},
	};
	must(argc == 2);
	side_open(&a);
	(void)other_node();
	side_open(&b);
	pair_connect(&a, &b);
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++)
		if (strcmp(argv[1], modes[i].name) == 0) {
			modes[i].run();
			puts("done");
			fflush(stdout);
			_exit(0); // the modes leave what a process may leave
		}
	return 2;
}
