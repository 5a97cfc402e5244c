// Package housetest has no code, but tests of the repository as a whole: that imports lead
// down, that each package is documented, that the documents name files that exist.
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
