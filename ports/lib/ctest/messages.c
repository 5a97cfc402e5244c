// messages.c: what libvelo2 does, between two mailboxes of one process. It needs a node
// (EXN_PORTS).
#include <string.h>

#include "../include/velo2.h"
#include "check.h"

static void velo(void)
{
	velo2_port_t p, q;
	velo2_connection_t c, back;
	char msg[200], got[200];
	uint32_t len, source;
	uint8_t tag, mtt;
	for (unsigned i = 0; i < sizeof(msg); i++)
		msg[i] = (char)i;
	EQUAL(velo2_open(&p), VELO2_RET_SUCCESS);
	EQUAL(velo2_open(&q), VELO2_RET_SUCCESS);
	EQUAL(velo2_connect(&p, &c, velo2_get_nodeid(&q), velo2_get_vpid(&q)), VELO2_RET_SUCCESS);
	EQUAL(velo2_connect(&q, &back, velo2_get_nodeid(&p), velo2_get_vpid(&p)), VELO2_RET_SUCCESS);
	EQUAL(velo2_connect(&q, &back, velo2_get_nodeid(&p), 3), VELO2_RET_INVALID_MBOX);
	EQUAL(velo2_connect(&q, &back, 999, 16), VELO2_RET_INVALID_NODE);
	EQUAL(velo2_probe(&q), VELO2_RET_NO_MSG);
	for (unsigned n = 1; n <= 120; n++) {
		EQUAL(velo2_send(&c, msg, n, (uint8_t)(n + 100), n % 16), VELO2_RET_SUCCESS);
		EQUAL(velo2_probe(&q), VELO2_RET_SUCCESS);
		EQUAL(velo2_recv(&q, got, sizeof(got), &len, &source, &tag, &mtt), VELO2_RET_SUCCESS);
		CHECK(len == n && memcmp(got, msg, n) == 0 && tag == (uint8_t)(n + 100) && mtt == n % 16);
		EQUAL(source, VELO2_ADDR_PACK(velo2_get_nodeid(&p), velo2_get_vpid(&p)));
	}
	EQUAL(velo2_send(&c, msg, 121, 0, 0), VELO2_RET_INV_MSG);
	EQUAL(velo2_send(&c, msg, 0, 0, 0), VELO2_RET_INV_MSG);
	EQUAL(velo2_send(&c, msg, 1, 0, 16), VELO2_RET_INV_MTT);
	unsigned n = 0;
	while (velo2_try_send(&c, &n, sizeof(n), 0, 0) == VELO2_RET_SUCCESS)
		n++;
	EQUAL(n, 128); // the credits of a flow
	EQUAL(velo2_try_send(&c, &n, sizeof(n), 0, 0), VELO2_RET_TRY_AGAIN);
	for (unsigned i = 0; i < n; i++) {
		EQUAL(velo2_probe_recv(&q, got, sizeof(got), &len, NULL, NULL, NULL), VELO2_RET_SUCCESS);
		CHECK(len == sizeof(i) && memcmp(got, &i, sizeof(i)) == 0);
	}
	EQUAL(velo2_probe_recv(&q, got, sizeof(got), &len, NULL, NULL, NULL), VELO2_RET_NO_MSG);
	EQUAL(velo2_send(&c, msg, 100, 0, 0), VELO2_RET_SUCCESS);
	EQUAL(velo2_probe_recv(&q, got, 99, &len, NULL, NULL, NULL), VELO2_RET_INV_MSG);
	EQUAL(len, 100);
	EQUAL(velo2_send(&c, msg, 1, 0, 0), VELO2_RET_SUCCESS);
	EQUAL(velo2_close(&p), VELO2_RET_SUCCESS);
	EQUAL(velo2_recv(&q, got, sizeof(got), &len, NULL, NULL, NULL), VELO2_RET_SUCCESS);
	EQUAL(velo2_recv(&q, got, sizeof(got), &len, &source, NULL, NULL), VELO2_RET_EOF);
	EQUAL(velo2_send(&back, msg, 1, 0, 0), VELO2_RET_ERROR);
	EQUAL(velo2_close(&q), VELO2_RET_SUCCESS);
}

// A plugin of pscom's sends a frame of 12 bytes and the payload, in messages as long as they may
// be: in one with 64 bytes for each, and in another one with 120.
static void frames(unsigned mtu, const unsigned want[5])
{
	static const unsigned payload[5] = {32, 64, 128, 256, 512};
	velo2_port_t p, q;
	velo2_connection_t c;
	char frame[12 + 512], got[12 + 512];
	EQUAL(velo2_open(&p), VELO2_RET_SUCCESS);
	EQUAL(velo2_open(&q), VELO2_RET_SUCCESS);
	EQUAL(velo2_connect(&p, &c, velo2_get_nodeid(&q), velo2_get_vpid(&q)), VELO2_RET_SUCCESS);
	for (int i = 0; i < 5; i++) {
		unsigned size = 12 + payload[i], messages = 0;
		uint32_t len;
		for (unsigned k = 0; k < size; k++)
			frame[k] = (char)(k * 5 + 1);
		memset(got, 0, sizeof(got));
		for (unsigned off = 0; off < size; off += mtu)
			EQUAL(velo2_send(&c, frame + off, size - off < mtu ? size - off : mtu, 0, 0), VELO2_RET_SUCCESS);
		for (unsigned off = 0; velo2_probe_recv(&q, got + off, size - off, &len, NULL, NULL, NULL) == VELO2_RET_SUCCESS; off += len)
			messages++;
		EQUAL(messages, want[i]);
		CHECK(memcmp(got, frame, size) == 0);
	}
	EQUAL(velo2_close(&p), VELO2_RET_SUCCESS);
	EQUAL(velo2_close(&q), VELO2_RET_SUCCESS);
}

int main(void)
{
	velo();
	frames(64, (const unsigned[]){1, 2, 3, 5, 9});
	frames(120, (const unsigned[]){1, 1, 2, 3, 5});
	return 0;
}
