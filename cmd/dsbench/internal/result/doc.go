// Package result defines the form of dsbench's results: a Row for each path and size, and the
// Machine that it was measured on; and formats numbers for people.
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
