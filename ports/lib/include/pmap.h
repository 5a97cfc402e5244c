/* pmap.h: the interface of EXTOLL's driver for physical memory. exnet has no such device:
 * programs that include this header compile, and opening the device fails. */
#ifndef PMAP_H
#define PMAP_H

#include <sys/ioctl.h>

#define PMAP_IOCTL_SET_TYPE _IO('P', 0)
#define PMAP_IOCTL_SET_SIZE _IO('P', 1)
#define PMAP_IOCTL_GET_PADDR _IO('P', 2)
#define PMAP_IOCTL_SET_PADDR _IO('P', 3)

#endif
