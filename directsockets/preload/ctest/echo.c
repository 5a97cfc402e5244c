// One end of a segment, for a peer in another language: sends back what it receives.
//
// 	echo SIDE SEGMENT BELL		the descriptors' numbers
//
// It sleeps on its doorbell whenever there is nothing to do. Ends with 0 when the other direction
// was shut down and all was sent back.
#include "harness.h"

#include <errno.h>
#include <poll.h>

static struct ds_seg g;
static struct ds_tx tx;
static struct ds_rx rx;
static struct ds_attention attention;

static void sleep_for(uint32_t what)
{
	struct pollfd p = {.fd = g.bell, .events = POLLIN};
	char buf[64];

	ds_attend(&g, &attention, what, 0);
	ds_fence(&g);
	uint64_t carried;
	struct ds_rx copy = rx;
	bool ready = what & DS_ARM_RX ? (copy.pos[copy.cur].count ? ds_rx_look(&g, &rx) != DS_AGAIN : ds_rx_promoted(&g, &copy, &carried) != 0)
				      : ds_tx_room(&g, &tx) != 0;
	if (!ready && poll(&p, 1, 180000) == 0) {
		fprintf(stderr, "echo: nobody woke me\n");
		exit(3);
	}
	ds_attend(&g, &attention, 0, DS_ARM_RX | DS_ARM_TX);
	ssize_t n;
	while ((n = recv(g.bell, buf, sizeof buf, MSG_DONTWAIT)) > 0)
		;
	if (n == 0 && ds_rx_look(&g, &rx) == DS_AGAIN)
		exit(4);
}

int main(int argc, char **argv)
{
	static uint8_t buf[70000];
	uint64_t carried;
	int got;

	if (argc != 4 || ds_seg_map(&g, atoi(argv[2]), atoi(argv[1])) < 0)
		return 2;
	g.bell = atoi(argv[3]);
	g.expedited = ds_expedite();
	if (g.side == 1)
		ds_seg_state(&g, &attention, DS_ATTACHED);
	else // as the one who made it
		__atomic_store_n(&g.own->flags, g.expedited, __ATOMIC_RELEASE);
	while (g.side == 0 && ds_seg_peer_state(&g) != DS_ATTACHED)
		poll(NULL, 0, 1);
	if (ds_tx_promote(&g, &tx, &attention, 0) < 0)
		return 5;
	while ((got = ds_rx_promoted(&g, &rx, &carried)) == 0)
		sleep_for(DS_ARM_RX);
	if (got != 1 || carried != 0)
		return 6;
	for (size_t round = 0;; round++) {
		struct iovec v;
		struct ds_cursor c = cursor_of(&v, buf, 1 + round * 7919 % sizeof buf);
		ssize_t n = ds_rx_recv(&g, &rx, &attention, &c, false, false);
		if (n == DS_AGAIN) {
			sleep_for(DS_ARM_RX);
			continue;
		}
		if (n == DS_END)
			break;
		if (n < 0)
			return 7;
		c = cursor_of(&v, buf, (size_t)n);
		while (c.left) {
			n = ds_tx_send(&g, &tx, &attention, &c);
			if (n == DS_AGAIN)
				sleep_for(DS_ARM_TX);
			else if (n < 0)
				return 8;
		}
	}
	while ((got = ds_tx_end(&g, &tx, &attention, DS_SHUTDOWN)) == DS_AGAIN)
		sleep_for(DS_ARM_TX);
	ds_attend(&g, &attention, DS_CLOSED, 0);
	return got ? 9 : 0;
}
