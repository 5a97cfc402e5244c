// Package result has the form of what dsbench measures: a Row for each path and size, and the
// Machine that it was measured on; and how numbers are written for people.
//
// # Architecture
//
//	samples ─► Row ─► a line of JSON, a line of a table, a figure of a report
//
// # Concurrency
//
// Its values are plain data.
//
// # Limits
//
// Figures keep four decimals.
package result
