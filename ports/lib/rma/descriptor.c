// descriptor.c: operations prepared in advance and posted any number of times.
#include <stdlib.h>

#include "command.h"

// A descriptor's words: 0: size or class in bits 40 to 62, modifier in 35, notifications in 32,
// command in 2. 1 and 2: addresses, or values.
static RMA2_ERROR set(RMA2_Descriptor *d, RMA2_Handle c, const struct command *o)
{
	if (d == NULL)
		return RMA2_ERR_WRONG_ARG;
	d->handle = c;
	uint64_t size = o->kind == RMA2_NOTIFICATION_PUT || o->kind == RMA2_LOCK_REQ ? o->size : o->size - 1;
	d->value[0] = (size & 0x7fffff) << 40 | (o->modifier & 15ull) << 35 | (o->spec & 7ull) << 32 | (o->kind & 15ull) << 2;
	d->value[1] = o->read;
	d->value[2] = o->write;
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_post_descriptor(RMA2_Port e, RMA2_Handle c, RMA2_Descriptor *d)
{
	if (d == NULL)
		return RMA2_ERR_WRONG_ARG;
	uint64_t w = d->value[0];
	struct command o = {(RMA2_Command)(w >> 2 & 15), w >> 32 & 7, w >> 35 & 15, w >> 40 & 0x7fffff, d->value[1], d->value[2]};
	if (o.kind != RMA2_NOTIFICATION_PUT && o.kind != RMA2_LOCK_REQ)
		o.size++;
	return rma_execute(e, c, &o);
}

API RMA2_ERROR rma2_desc_alloc(RMA2_Port e, RMA2_Descriptor **d)
{
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	*d = e->descriptors;
	if (*d == NULL)
		*d = malloc(sizeof(**d));
	else
		e->descriptors = (*d)->next;
	if (*d == NULL)
		return RMA2_ERR_NO_DESC_MEM;
	**d = (RMA2_Descriptor){0};
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_desc_free(RMA2_Port e, RMA2_Descriptor *d)
{
	if (e == NULL || d == NULL)
		return e == NULL ? RMA2_ERR_INV_PORT : RMA2_ERR_WRONG_ARG;
	d->next = e->descriptors;
	e->descriptors = d;
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_desc_query_free(RMA2_Port e, int *num)
{
	*num = 0;
	if (e == NULL)
		return RMA2_ERR_INV_PORT;
	for (RMA2_Descriptor *d = e->descriptors; d != NULL; d = d->next)
		++*num;
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_desc_set_put_get(RMA2_Descriptor *d, RMA2_Handle c, RMA2_Command command, uint32_t count,
				     RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier, uint64_t read, uint64_t write)
{
	if (command > 15) // four bits; an unknown command is refused when it is posted
		return RMA2_ERR_WRONG_CMD;
	if (count < 1 || count > RMA_MAX_TRANSFER)
		return RMA2_ERR_INV_VALUE;
	return set(d, c, &(struct command){command, spec, modifier, count, read, write});
}

API RMA2_ERROR rma2_desc_set_immediate_put(RMA2_Descriptor *d, RMA2_Handle c, RMA2_Notification_Spec spec,
					   RMA2_Command_Modifier modifier, uint32_t count, uint64_t write, uint64_t value)
{
	if (count < 1 || count > 8)
		return RMA2_ERR_INV_VALUE;
	return set(d, c, &(struct command){RMA2_IMMEDIATE_PUT, spec, modifier, count, value, write});
}

API RMA2_ERROR rma2_desc_set_noti_put(RMA2_Descriptor *d, RMA2_Handle c, RMA2_Notification_Spec spec,
				      RMA2_Command_Modifier modifier, RMA2_Class class, uint64_t value)
{
	return set(d, c, &(struct command){RMA2_NOTIFICATION_PUT, spec, modifier, class, value, 0});
}

API RMA2_ERROR rma2_desc_set_lock(RMA2_Descriptor *d, RMA2_Handle c, RMA2_Notification_Spec spec, RMA2_Command_Modifier modifier,
				  uint8_t type, uint32_t number, uint32_t compare, uint32_t add)
{
	if (type > 1)
		return RMA2_ERR_INV_VALUE;
	return set(d, c, &(struct command){RMA2_LOCK_REQ, spec, modifier, 0, number, (uint64_t)compare << 32 | add});
}

API RMA2_ERROR rma2_desc_set_notification_value(RMA2_Descriptor *d, RMA2_Class class, uint64_t value)
{
	if (d == NULL)
		return RMA2_ERR_WRONG_ARG;
	d->value[0] = (d->value[0] & ~(0x7fffffull << 40)) | (uint64_t)class << 40;
	d->value[1] = value;
	return RMA2_SUCCESS;
}
