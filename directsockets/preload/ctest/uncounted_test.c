// How long conn/ need not know a connection: a server's until there may be an offer for it, a
// client's until it is worth one.
#include "ends.h"

// One request that e, a server's, has had and answered.
static void request(struct ds_traffic *e)
{
	ds_traffic_received(e, 1, 100);
	ds_traffic_sent(e, 300);
}

// Requests of e, up to `most`, before it is ripe, which is asked before each call.
static int until_ripe(struct ds_traffic *e, int fd, int most)
{
	int n = 0;

	for (; n < most; n++) {
		if (ds_ripe(e, 1, fd))
			break;
		ds_traffic_received(e, 1, 100);
		if (ds_ripe(e, 1, fd))
			break;
		ds_traffic_sent(e, 300);
	}
	return n;
}

// Nobody offers anything: it is reported after some hundred calls, or a MiB.
static void not_offered(int fd)
{
	struct ds_traffic few = {0}, large = {0};

	CHECK(until_ripe(&few, fd, 1000) == 127, "%d looks", few.looks);
	ds_traffic_received(&large, 1, (1 << 20) - 1);
	CHECK(!ds_ripe(&large, 1, fd), "before a MiB");
	ds_traffic_sent(&large, 1);
	CHECK(ds_ripe(&large, 1, fd), "after a MiB");
}

// Its client offers a segment after ten requests: it is ripe at once. Another's is not.
static void offered(void)
{
	struct ds_traffic e = {0}, other = {0}, first = {0};
	struct side c, c2;

	connect_to(&c);
	int fd = accept(listener, NULL, NULL);
	connect_plain(&c2);
	int fd2 = accept(listener, NULL, NULL);
	CHECK(until_ripe(&e, fd, 10) == 10 && until_ripe(&other, fd2, 10) == 10, "before the offer");
	for (int i = 0; i < 2; i++)
		CHECK(put(&c, "a", 1, 0) == 1, "offer");
	for (int64_t end = ds_now() + 60000000000; ds_now() < end && !(ds_page_offers(e.bucket - 1u) & 0xffff);)
		usleep(1000);
	CHECK(!ds_ripe(&first, 1, fd), "in its first request");
	request(&first);
	ds_traffic_received(&first, 1, 100);
	CHECK(ds_ripe(&e, 1, fd) && ds_ripe(&first, 1, fd), "with an offer in bucket %d", e.bucket - 1);
	CHECK(e.bucket == other.bucket || !ds_ripe(&other, 1, fd2), "another with bucket %d", other.bucket - 1);
	hang_up(&c);
	hang_up(&c2);
	close(fd);
	close(fd2);
}

// No socket any more: the handle is to say so.
static void no_connection(void)
{
	struct ds_traffic e = {0};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	request(&e);
	ds_traffic_received(&e, 1, 100);
	errno = EBADF;
	CHECK(ds_ripe(&e, 1, fd) && errno == EBADF, "%s", strerror(errno));
	close(fd);
}

// A client is not ripe earlier because another one is direct.
static void beside(void)
{
	struct ds_traffic e = {0};
	struct side c, s;

	pair_up(&c, &s);
	CHECK(!ds_ripe(&e, 0, -1), "beside a direct one");
	hang_up(&c);
	hang_up(&s);
}

int main(void)
{
	char path[64];
	struct side c, s;
	pid_t broker = ends_start(path, sizeof path);

	connect_to(&c);
	accept_from(&s);
	not_offered(s.fd);
	hang_up(&c);
	hang_up(&s);
	offered();
	no_connection();
	beside();
	ends_stop(broker, path);
	printf("uncounted: %d failed\n", failures);
	return failures != 0;
}
