// Package worker does jobs in processes of their own, which are this program
// again.
//
// # Architecture
//
// The program starts itself with a hidden command as its only argument, and the
// two talk in lines of JSON: the job, what there is to be noted on the way, and
// the result or why there is none.
//
//	Start                                  Run
//	   | stdin:  {...}                       |  the job
//	   | ----------------------------------> |
//	   | stdout: {"note":...}                |
//	   | <---------------------------------- |
//	   | stdout: {"result":...}              |  or {"error":"..."}
//	   | <---------------------------------- |
//
// A worker's standard input stays open as long as somebody wants its result. It
// ends with this program, however that ends, and then the worker does, too.
//
// # Concurrency
//
// A Process belongs to one goroutine at a time, but End and Kill may be called
// from any.
//
// # Limits
//
// An error comes as its text: errors.Is does not see through it.
package worker
