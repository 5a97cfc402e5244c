// Package mpi measures MPI between two ranks over paths of dsbench: the command "dsbench
// mpi".
//
// # Architecture
//
//	Options ─▶ Run ─▶ osu.c, compiled by each MPI's own compiler
//	              └─▶ a path ─▶ exn-rsh ─▶ mpirun in its namespaces ─▶ lines ─▶ rows
//
// The runs of all paths alternate, so that other work on the machine affects all of them
// alike.
//
// # Concurrency
//
// One measurement runs at a time.
//
// # Limits
//
// Root only: the ranks are in namespaces. An MPI that does not end after its last line is
// ended (MPICH over UCX; docs/mpi.md).
package mpi
