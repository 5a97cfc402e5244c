#!/bin/bash
# MPI over its TCP transport: ping-pong, all to all, reductions, checked.
# needs: mpirun.openmpi=openmpi-bin mpicc.openmpi=libopenmpi-dev
# port: 0
. "${0%/*}/lib.sh"

check() {
	[ -e mpi ] || mpicc.openmpi -O1 -o mpi "${0%/*}/mpi.c"
	export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
	mpirun.openmpi --mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo -np 4 ./mpi "$SIZE" > said
	grep -q "all right" said || { cat said; exit 1; }
}

load() { check; }

run "$@"
