// Package pattern describes who sends how much to whom in a parallel program:
// made by formula, or read from a profiler's recording.
//
// # Architecture
//
//	Make("cg", Params) ──────────────┐
//	ReadFile(run.json, .tar.gz, dir) ├─▶ Pattern: ranks, flows (from, to, bytes)
//	ReadFile(pairs.csv) ─────────────┘
//	Process ... ──▶ WriteJSON, WriteArchive      PFProf's form
//
// A recording has PFProf's form: for each rank an object with what it has sent to
// and received from every other one (K. Takahashi, 2019, section 2.3.2). PFProf writes a
// file for each rank and packs them as .tar.gz; an array of the same objects in one
// file is read and written, too.
//
// The formula of NPB's CG gives what its source sends in 76 calls of conj_grad: 26
// pieces of q to every partner of the row's sum, and to the transpose. The 54
// scalars of a call count for the transpose, as in the published recording of
// CG-C-128.
//
// # Concurrency
//
// A Pattern is immutable.
//
// # Limits
//
// Bytes are those of a whole run: the order of messages, and pauses, are lost.
package pattern
