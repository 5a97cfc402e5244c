// Package linux does nothing, and builds on Linux only. Who uses what only Linux has
// imports it, so that a build for another system ends with one error that says so.
package linux
