/* velo2_mod.h exists because programs for EXTOLL include it beside velo2.h. It defines nothing. */
#ifndef VELO2_MOD_H
#define VELO2_MOD_H
#endif
