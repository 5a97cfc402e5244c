// noti.c: what is in a notification.
//
//	word 1   63..61 error | 60..55 mode | 54..51 command | 50..48 writer
//	         47..32 node | 30..23 VPID | 22..0 bytes of the last packet, less 1
//	         of a notification PUT: 7..0 class
//	word 0   the local address of the last packet; the payload of a notification PUT;
//	         of a lock: 63..32 value | 31..24 result | 23..0 number
#include "rma.h"

RMA2_Notification rma_noti(const RMA2_Connection *c, unsigned type, unsigned command, unsigned mode)
{
	RMA2_Notification n = {0};
	n.word1.value = (uint64_t)type << 48 | (uint64_t)command << 51 | (uint64_t)mode << 55 | (uint64_t)c->node << 32 |
			(uint64_t)(c->vpid & 0xff) << 23;
	return n;
}

API RMA2_Command rma2_noti_get_cmd(RMA2_Notification *n)
{
	return (RMA2_Command)(n->word1.value >> 51 & 15);
}

API RMA2_Notification_Spec rma2_noti_get_notification_type(RMA2_Notification *n)
{
	return (RMA2_Notification_Spec)(n->word1.value >> 48 & 7);
}

API RMA2_Notification_Modifier rma2_noti_get_mode(RMA2_Notification *n)
{
	return (RMA2_Notification_Modifier)(n->word1.value >> 55 & 63);
}

API uint8_t rma2_noti_get_error(RMA2_Notification *n)
{
	return (uint8_t)(n->word1.value >> 61);
}

API RMA2_Nodeid rma2_noti_get_remote_nodeid(RMA2_Notification *n)
{
	return (RMA2_Nodeid)(n->word1.value >> 32);
}

API RMA2_VPID rma2_noti_get_remote_vpid(RMA2_Notification *n)
{
	return n->word1.value >> 23 & 0xff;
}

API uint64_t rma2_noti_get_local_address(RMA2_Notification *n)
{
	return n->word0.value;
}

API uint32_t rma2_noti_get_size(RMA2_Notification *n)
{
	return (uint32_t)(n->word1.value & 0x7fffff) + 1;
}

API uint32_t rma2_noti_get_total_size(RMA2_NLA start, RMA2_Notification *n)
{
	return (uint32_t)(rma2_noti_get_local_address(n) - start) + rma2_noti_get_size(n);
}

API uint32_t rma2_noti_get_lock_value(RMA2_Notification *n)
{
	return (uint32_t)(n->word0.value >> 32);
}

API uint32_t rma2_noti_get_lock_number(RMA2_Notification *n)
{
	return n->word0.value & 0xffffff;
}

API uint8_t rma2_noti_get_lock_result(RMA2_Notification *n)
{
	return (uint8_t)(n->word0.value >> 24);
}

API uint64_t rma2_noti_get_notiput_payload(RMA2_Notification *n)
{
	return n->word0.value;
}

API uint8_t rma2_noti_get_notiput_class(RMA2_Notification *n)
{
	return (uint8_t)n->word1.value;
}

static const char *command_name(RMA2_Command c)
{
	static const char *const names[16] = {
		[RMA2_BT_GET] = "byte GET", [RMA2_QW_GET] = "quadword GET", [RMA2_BT_PUT] = "byte PUT",
		[RMA2_QW_PUT] = "quadword PUT", [RMA2_NOTIFICATION_PUT] = "notification PUT",
		[RMA2_IMMEDIATE_PUT] = "immediate PUT", [RMA2_GET_BT_RSP] = "byte GET response",
		[RMA2_GET_QW_RSP] = "quadword GET response", [RMA2_LOCK_REQ] = "lock request",
		[RMA2_LOCK_RSP] = "lock response", [RMA2_ANY] = "none: the peer has ended",
	};
	return names[c & 15] != NULL ? names[c & 15] : "unknown";
}

static const char *writer_name(RMA2_Notification_Spec t)
{
	switch (t) {
	case RMA2_REQUESTER_NOTIFICATION:
		return "requester";
	case RMA2_RESPONDER_NOTIFICATION:
		return "responder";
	case RMA2_COMPLETER_NOTIFICATION:
		return "completer";
	default:
		return "unknown";
	}
}

API void rma2_noti_sdump(RMA2_Notification *n, char *text, int size)
{
	if (size < 1)
		return;
	RMA2_Command c = rma2_noti_get_cmd(n);
	int at = snprintf(text, (size_t)size, "%s notification of %u/%u: %s, mode %#x, error %u, ",
			  writer_name(rma2_noti_get_notification_type(n)), rma2_noti_get_remote_nodeid(n),
			  rma2_noti_get_remote_vpid(n), command_name(c), rma2_noti_get_mode(n), rma2_noti_get_error(n));
	if (at < 0 || at >= size)
		return;
	size_t left = (size_t)(size - at);
	if (c == RMA2_LOCK_REQ || c == RMA2_LOCK_RSP)
		snprintf(text + at, left, "lock %u, value %d, result %u", rma2_noti_get_lock_number(n),
			 (int32_t)rma2_noti_get_lock_value(n), rma2_noti_get_lock_result(n));
	else if (c == RMA2_NOTIFICATION_PUT)
		snprintf(text + at, left, "class %#x, payload %#llx", rma2_noti_get_notiput_class(n),
			 (unsigned long long)rma2_noti_get_notiput_payload(n));
	else
		snprintf(text + at, left, "address %#llx, %u bytes", (unsigned long long)rma2_noti_get_local_address(n),
			 rma2_noti_get_size(n));
}

API void rma2_noti_fdump(RMA2_Notification *n, FILE *file)
{
	char text[256];
	rma2_noti_sdump(n, text, sizeof(text));
	fprintf(file, "%s\n", text);
}

API void rma2_noti_dump(RMA2_Notification *n)
{
	rma2_noti_fdump(n, stdout);
}
