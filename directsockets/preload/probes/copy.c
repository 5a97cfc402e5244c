#include "probe.h"

/* Probes of calls that copy between descriptors. */

static char buf[1 << 20], buf2[1 << 20];

static void file_send(void)
{
	int c, s, f = memfd_create("probe", 0);
	off_t off = 1000;
	pair(&c, &s);
	fill(buf, 300000, 5);
	put(f, buf, 300000);
	lseek(f, 0, SEEK_SET);
	pid_t pid = fork();
	if (pid == 0) {
		size_t n = get(s, buf2, 350000);
		out("reader: %zu", n);
		out("same %d %d %d", !memcmp(buf, buf2, 100000), !memcmp(buf + 1000, buf2 + 100000, 50000), !memcmp(buf + 100000, buf2 + 150000, 200000));
		_exit(0);
	}
	R(sendfile(c, f, NULL, 100000));
	R(lseek(f, 0, SEEK_CUR));
	R(sendfile(c, f, &off, 50000));
	out("off %ld", (long)off);
	R(lseek(f, 0, SEEK_CUR));
	size_t n = 0;
	while (n < 200000)
		n += (size_t)sendfile(c, f, NULL, 1 << 20);
	finish(pid);
	out("rest %zu", n);
	R(sendfile(c, f, NULL, 100));
	R(sendfile(c, 999, NULL, 100));
	off = -5;
	R(sendfile(c, f, &off, 10));
}

static void splices(void)
{
	int c, s, p[2];
	pair(&c, &s);
	if (pipe(p))
		die("pipe");
	put(p[1], "through the pipe", 16);
	R(splice(p[0], NULL, c, NULL, 100, 0));
	R(read(s, buf, 100));
	out("%.16s", buf);
	put(c, "back into it", 12);
	readable(s, LONG);
	R(splice(s, NULL, p[1], NULL, 100, 0));
	R(read(p[0], buf, 100));
	out("%.12s", buf);
	nonblock(s, 1);
	R(splice(s, NULL, p[1], NULL, 100, 0));
	shutdown(c, SHUT_WR);
	readable(s, LONG);
	R(splice(s, NULL, p[1], NULL, 100, 0));
}


/* A pipe that the kernel's own splice has used: it knows RWF_NOWAIT no more. */
static void used_pipe(int p[2])
{
	int q[2];

	if (pipe(p) || pipe(q))
		die("pipe");
	put(q[1], "used", 4);
	R(splice(q[0], NULL, p[1], NULL, 10, 0));
	R(read(p[0], buf, 10));
	close(q[0]);
	close(q[1]);
}

static void splice_used(void)
{
	int c, s, p[2];
	pair(&c, &s);
	used_pipe(p);
	put(c, "socket to pipe", 14);
	readable(s, LONG);
	R(splice(s, NULL, p[1], NULL, 100, 0));
	R(splice(p[0], NULL, s, NULL, 6, 0));
	R(read(c, buf, 100));
	out("%.6s", buf);
	R(read(p[0], buf, 100));
	out("%.8s", buf);
	/* from and to sockets of another kind */
	int u[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, u);
	put(u[0], "unix", 4);
	R(splice(u[1], NULL, p[1], NULL, 10, 0));
	R(splice(p[0], NULL, c, NULL, 10, SPLICE_F_MORE));
	R(read(s, buf, 10));
	out("%.4s", buf);
}

/* Each piece takes a place of the pipe, however small. */
static void splice_full(void)
{
	int c, s, p[2], n = 0, err = 0, left = -1;
	pair(&c, &s);
	used_pipe(p);
	put(c, buf, 100);
	readable(s, LONG);
	while (n < 100 && splice(s, NULL, p[1], NULL, 1, SPLICE_F_NONBLOCK) == 1)
		n++;
	err = errno;
	out("%d pieces, then %s", n, errname(err));
	R(ioctl(s, FIONREAD, &left));
	out("unread %d", left);
	R(read(p[0], buf, 3));
	R(splice(s, NULL, p[1], NULL, 50, SPLICE_F_NONBLOCK));
	nonblock(p[1], 1);
	while (write(p[1], buf, 4096) > 0)
		;
	R(splice(s, NULL, p[1], NULL, 1, 0));
	R(ioctl(s, FIONREAD, &left));
	out("unread %d", left);
}

/* What a call looks at first: the pipe. */
static void splice_order(void)
{
	int c, s, p[2];
	pair(&c, &s);
	used_pipe(p);
	for (int i = 0; i < 16; i++)
		put(p[1], buf, 4096);
	R(splice(s, NULL, p[1], NULL, 10, SPLICE_F_NONBLOCK)); /* nothing to read, and no room */
	nonblock(s, 1);
	R(splice(s, NULL, p[1], NULL, 10, SPLICE_F_NONBLOCK));
	get(p[0], buf, 65536);
	R(splice(s, NULL, p[1], NULL, 10, 0)); /* room, but nothing to read */
	R(splice(p[0], NULL, s, NULL, 10, SPLICE_F_NONBLOCK));
	put(c, "x", 1);
	readable(s, LONG);
	close(p[0]);
	signal(SIGPIPE, SIG_IGN);
	R(splice(s, NULL, p[1], NULL, 10, 0)); /* nobody reads the pipe */
	R(read(s, buf, 10));
	used_pipe(p);
	put(p[1], "end", 3);
	close(p[1]);
	R(splice(p[0], NULL, s, NULL, 10, 0));
	R(splice(p[0], NULL, s, NULL, 10, 0));
	R(read(c, buf, 10));
	shutdown(s, SHUT_WR);
	used_pipe(p);
	put(p[1], "kept", 4);
	R(splice(p[0], NULL, s, NULL, 10, 0));
	R(read(p[0], buf, 10));
}

static void splice_refused(void)
{
	int c, s, p[2], f = memfd_create("probe", 0);
	loff_t off = 0;
	pair(&c, &s);
	used_pipe(p);
	put(c, "still there", 11);
	readable(s, LONG);
	R(splice(s, &off, p[1], NULL, 10, 0));
	R(splice(s, NULL, p[1], &off, 10, 0));
	R(splice(s, NULL, p[1], NULL, 10, 64));
	R(splice(s, NULL, p[0], NULL, 10, 0));
	R(splice(s, NULL, c, NULL, 10, 0));
	R(splice(s, NULL, f, NULL, 10, 0));
	R(splice(s, NULL, 999, NULL, 10, 0));
	R(splice(s, NULL, p[1], NULL, 0, 0));
	R(splice(p[1], NULL, s, NULL, 10, 0));
	R(splice(f, NULL, s, NULL, 10, 0));
	R(tee(s, p[1], 10, 0));
	R(tee(p[0], s, 10, 0));
	struct iovec v = {buf, 10};
	R(vmsplice(s, &v, 1, 0));
	R(sendfile(s, p[0], NULL, 10));
	R(sendfile(s, c, NULL, 10));
	R(sendfile(f, s, NULL, 10));
	R(sendfile(p[1], s, &off, 10));
	R(sendfile(p[0], s, NULL, 10));
	int dir = open("/", O_RDONLY);
	R(sendfile(s, dir, NULL, 10));
	int only = open("/dev/null", O_WRONLY);
	R(sendfile(s, only, NULL, 10));
	R(sendfile(s, f, (void *)-1, 10));
	R(sendfile(s, f, NULL, (size_t)-1));
	R(copy_file_range(s, NULL, f, NULL, 10, 0));
	R(read(s, buf, 100));
}

static void sendfile_to_pipe(void)
{
	int c, s, p[2];
	pair(&c, &s);
	used_pipe(p);
	put(c, "by sendfile", 11);
	readable(s, LONG);
	R(sendfile(p[1], s, NULL, 5));
	R(read(p[0], buf, 10));
	nonblock(p[1], 1);
	R(sendfile(p[1], s, NULL, 100));
	R(read(p[0], buf, 10));
	nonblock(s, 1);
	R(sendfile(p[1], s, NULL, 100));
	shutdown(c, SHUT_WR);
	readable(s, LONG);
	R(sendfile(p[1], s, NULL, 100));
}

/* Pages that the program gave to the pipe. */
static void vmsplice_send(void)
{
	int c, s, p[2];
	pair(&c, &s);
	used_pipe(p);
	struct iovec v[2] = {{"memory", 6}, {" of the program", 15}};
	R(vmsplice(p[1], v, 2, 0));
	R(splice(p[0], NULL, c, NULL, 100, SPLICE_F_MOVE));
	arrived(s, 21);
	R(read(s, buf, 100));
	out("%.21s", buf);
}

enum { RELAYED = 6 << 20 };

/* In a process of its own: what comes from one end goes to the other by a pipe, as a proxy does,
 * without waiting. */
static void relay(int from, int to, int flags)
{
	int p[2], in_pipe = 0;
	if (pipe(p))
		die("pipe");
	nonblock(from, 1);
	nonblock(to, 1);
	for (int eof = 0; !eof || in_pipe;) {
		struct pollfd w[2] = {{in_pipe || eof ? -1 : from, POLLIN, 0}, {in_pipe ? to : -1, POLLOUT, 0}};
		if (poll(w, 2, LONG) <= 0)
			die("poll");
		if (!in_pipe && !eof) {
			ssize_t n = splice(from, NULL, p[1], NULL, 300000, (unsigned)flags);
			if (n < 0 && errno != EAGAIN)
				die("splice from");
			eof = n == 0;
			in_pipe += n > 0 ? (int)n : 0;
		}
		if (in_pipe) {
			ssize_t n = splice(p[0], NULL, to, NULL, (size_t)in_pipe, (unsigned)flags);
			if (n < 0 && errno != EAGAIN)
				die("splice to");
			in_pipe -= n > 0 ? (int)n : 0;
		}
	}
	shutdown(to, SHUT_WR);
}

static void splice_relay(void)
{
	int c, s, c2, s2;
	static char seen[65536];
	pair(&c, &s);
	pair(&c2, &s2);
	pid_t a = fork();
	if (a == 0) {
		for (int i = 0; i < RELAYED; i += 65536) {
			fill(buf, 65536, (unsigned)i);
			put(c, buf, 65536);
		}
		shutdown(c, SHUT_WR);
		_exit(0);
	}
	pid_t b = fork();
	if (b == 0) {
		relay(s, c2, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
		_exit(0);
	}
	close(c);
	int same = 0, i;
	for (i = 0; i < RELAYED && get(s2, seen, 65536) == 65536; i += 65536) {
		fill(buf, 65536, (unsigned)i);
		same += memcmp(buf, seen, 65536) == 0;
		if (i % (1 << 20) == 0)
			nap(5); /* so that the relay meets full buffers */
	}
	out("%d bytes, %d pieces the same", i, same);
	R(read(s2, seen, 1));
	finish(a);
	finish(b);
}

const struct probe copy_probes[] = {
	{"sendfile", file_send, 0},
	{"splice", splices, 0},
	{"splice-used", splice_used, 0},
	{"splice-full", splice_full, 0},
	{"splice-order", splice_order, 0},
	{"splice-refused", splice_refused, 0},
	{"splice-relay", splice_relay, 0},
	{"sendfile-pipe", sendfile_to_pipe, 0},
	{"vmsplice", vmsplice_send, 0},
	{NULL, NULL, 0},
};
