/* velo2_mod.h is what programs for EXTOLL include beside velo2.h, which has it all. */
#ifndef VELO2_MOD_H
#define VELO2_MOD_H
#endif
