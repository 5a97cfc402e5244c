/* arch_define.h is what programs for EXTOLL include beside rma2.h; there is nothing in it. */
#ifndef ARCH_DEFINE_H
#define ARCH_DEFINE_H
#endif
