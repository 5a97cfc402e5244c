/* Whom this layer tells of what it finds: fd/. */
#include "conn/inner.h"

const struct ds_notices *ds_above DS_START_DATA;
DS_START void ds_tell(const struct ds_notices *to) { ds_above = to; }
