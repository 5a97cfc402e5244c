/* The mode in which tests of programs, which send a datagram or two, use flows. */
#include "conn/dgram.h"
#include "conn/inner.h"

bool ds_dg_eager_flow(struct ds_dgram *d, int fd, const uint8_t addr[16], uint16_t port)
{
	bool ready = false, offered = false;

	for (int i = 0; i < 2 && !offered; i++) {
		if (DS_GET(d->hard) || ds_own_lock(&d->out) == DS_NESTED)
			return false;
		struct ds_dg_dest *t = ds_dg_dest(d, addr, port);
		if (t && t->flow) {
			offered = true;
			ready = ds_dg_flow(d, t) != NULL;
		}
		ds_own_unlock(&d->out);
		if (!offered && t && i == 0 && ds_page_receivers(port))
			ds_dg_offer(d, fd, addr, port);
	}
	return ready;
}
