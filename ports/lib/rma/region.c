// region.c: the address and size of a region.
#include "rma.h"

API RMA2_ERROR rma2_get_nla(RMA2_Region *r, size_t offset, RMA2_NLA *nla)
{
	if (offset + r->offset >= r->size)
		return RMA2_ERR_INV_VALUE;
	*nla = r->nla + r->offset + offset;
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_get_va(RMA2_Region *r, size_t offset, void **va)
{
	// Of a page list only the first page is known here.
	if (offset + r->offset >= (r->end != NULL ? r->size : EXN_PAGE))
		return RMA2_ERR_INV_VALUE;
	*va = (char *)r->start + r->offset + offset;
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_get_size(RMA2_Region *r, size_t *size)
{
	*size = r->length;
	return RMA2_SUCCESS;
}

API RMA2_ERROR rma2_get_page_count(RMA2_Region *r, size_t *count)
{
	*count = r->count;
	return RMA2_SUCCESS;
}

API int rma2_get_region_contained(RMA2_Region *r, void *start, size_t size)
{
	return (char *)start >= (char *)r->start && (char *)start + size <= (char *)r->end;
}

API int rma2_get_region_overlap(RMA2_Region *r, void *start, size_t size)
{
	return (char *)start < (char *)r->end && (char *)start + size > (char *)r->start;
}

API int rma2_get_region_equal(RMA2_Region *r, void *start, size_t size)
{
	return (char *)start == (char *)r->start + r->offset && size == r->length;
}
