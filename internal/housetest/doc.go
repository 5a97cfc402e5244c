// Package housetest tests the repository as a whole: imports lead down, each package is
// documented, documents name files that exist.
//
// # Architecture
//
//	tree ► packages (go/parser) ► one test for each rule
//
// # Concurrency
//
// None.
//
// # Limits
//
// It reads source text and runs nothing.
package housetest
