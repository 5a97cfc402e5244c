// Package worker runs jobs in separate processes, which are copies of this
// program.
//
// # Architecture
//
// The program starts itself with a hidden command as its only argument, and the
// two exchange lines of JSON: the job, notes on the way, and the result or the
// error.
//
//	Start                                  Run
//	   | stdin:  {...}                       |  the job
//	   | ----------------------------------> |
//	   | stdout: {"note":...}                |
//	   | <---------------------------------- |
//	   | stdout: {"result":...}              |  or {"error":"..."}
//	   | <---------------------------------- |
//
// A worker's standard input stays open as long as its result is wanted. It
// closes with this program, however that ends, and then the worker ends, too.
//
// # Concurrency
//
// A Process belongs to one goroutine at a time, but End and Kill may be called
// from any.
//
// # Limits
//
// An error arrives as text: errors.Is does not match it.
package worker
