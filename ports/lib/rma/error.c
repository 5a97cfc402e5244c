// error.c: errors in words.
#include "rma.h"

static const char *text(RMA2_ERROR e)
{
	switch (e) {
	case RMA2_SUCCESS:
		return "success";
	case RMA2_ERR_ERROR:
		return "the node has ended, or another error occurred";
	case RMA2_ERR_INV_HANDLE:
		return "no such connection";
	case RMA2_ERR_INV_PORT:
		return "no such port";
	case RMA2_ERR_INV_VALUE:
		return "a value is out of range";
	case RMA2_ERR_NO_ROUTE:
		return "there is no such node";
	case RMA2_ERR_PORTS_USED:
		return "no port is left: close one";
	case RMA2_ERR_NO_MEM:
		return "this memory cannot be registered";
	case RMA2_NO_NOTI:
		return "there is no notification";
	case RMA2_ERR_WRONG_ARG:
		return "wrong argument";
	case RMA2_ERR_NOT_YET:
		return "exnet does not implement this";
	case RMA2_ERR_NO_DESC_MEM:
		return "too many notifications are in use: free some";
	case RMA2_ERR_WRONG_CMD:
		return "wrong command";
	case RMA2_ERR_NO_DEVICE:
		return "no node runs in this network namespace: start exn-tun";
	case RMA2_ERR_NO_CONNECT:
		return "the port is not open, or belongs to another user";
	case RMA2_ERR_INVALID_VERSION:
		return "the node has another version: restart it, or rebuild this program";
	case RMA2_ERR_MMAP:
		return "memory cannot be mapped";
	case RMA2_ERR_MAP:
		return "no memory";
	case RMA2_ERR_NO_TABLE:
		return "the region is not registered";
	case RMA2_ERR_ATU:
		return "no addresses are left";
	default:
		return "unknown error";
	}
}

API void rma2_serror(RMA2_ERROR e, char *buf, int size)
{
	if (size > 0)
		snprintf(buf, (size_t)size, "%s (%d)", text(e), e);
}

API void rma2_perror(RMA2_ERROR e, char *header)
{
	fprintf(stderr, "%s: %s (%d)\n", header, text(e), e);
}
