// Package exnsim is the program exn-sim: it reads a scenario, runs all its
// combinations, and writes the load that they put on the links.
//
// # Architecture
//
//	run FILE -o DIR ─▶ study.ReadScenario ─▶ for each run: study.Simulate ─▶ DIR/run-001/
//	                                             │                           links.csv, jobs.csv,
//	                                             ▼                           network.graphml, load.svg
//	                                     runs.csv, runs.json, index.html
//	credits ─▶ study/credit.Run for each combination ─▶ tables
//
// # Concurrency
//
// One run after the other, so that a large network is in memory once.
//
// # Limits
//
// A network of more than 4096 vertices is not drawn; its page says so.
package exnsim
