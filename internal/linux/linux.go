// Package linux does nothing, and builds only on Linux. Packages that need Linux
// import it, so that a build for another system ends with one error that says so.
package linux
