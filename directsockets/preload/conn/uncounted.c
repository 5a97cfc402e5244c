/* Connections that are uncounted (life.h): what the program does on them, and when it is enough for
 * a handle. */
#include "conn/broker.h"
#include "conn/inner.h"

#include <errno.h>

enum {
	LONG_LOOKS = 255, /* a server whose client offers nothing is reported, like others */
	LONG_BYTES = 1 << 20,
};

/* May there be an offer for t, an uncounted server's whose descriptor is fd? */
static bool may_be_offered(struct ds_traffic *t, int fd)
{
	struct ds_info info;
	unsigned bucket = DS_GET(t->bucket);
	int saved = errno;

	if (!bucket) {
		bool known = ds_addresses(fd, 1, &info);

		errno = saved;
		if (!known)
			return true; /* the handle tells what is wrong */
		bucket = ds_bucket(&info) + 1;
		DS_SET(t->bucket, (uint16_t)bucket);
	}
	return ds_page_offers(bucket - 1) & 0xffff;
}

bool ds_ripe_ask(struct ds_traffic *t, int side, int fd)
{
	uint64_t moved = (uint64_t)DS_GET(t->sent) + DS_GET(t->received);

	if (side == 0)
		return ds_worth(DS_GET(t->sends), moved);
	if (ds_config.wait)
		return true;
	unsigned looks = DS_GET(t->looks);
	if (looks >= LONG_LOOKS || moved >= LONG_BYTES)
		return true;
	DS_SET(t->looks, (uint8_t)(looks + 1));
	if (!DS_GET(t->again) && looks + 1 < DS_LOOKS && moved < ds_config.bytes)
		return false;
	return ds_broker_orphans() || ds_broker_better() || may_be_offered(t, fd);
}
