/* arch_define.h exists because programs for EXTOLL include it beside rma2.h. It defines
 * nothing. */
#ifndef ARCH_DEFINE_H
#define ARCH_DEFINE_H
#endif
