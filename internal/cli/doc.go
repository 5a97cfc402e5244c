// Package cli is what the commands have in common on their command lines: how flags are
// defined and explained, how values are read, how errors are told, and exit statuses.
//
// # Architecture
//
//	command's flags (pflag) ► Group, Number, Size ► Help ► -h, man page
//	error of any package    ► Text                ► one line on standard error
//
// The value's name of a flag stands in back quotes at the beginning of its usage, and its
// default in parentheses at the end:
//
//	fs.IntVar(&o.runs, "runs", 5, "`N` runs of each path (5)")
//
// It does without cobra (see package command), which exn-run does not have.
//
// # Concurrency
//
// A FlagSet is for one goroutine; everything else may be called from many.
//
// # Limits
//
// Help is 80 columns wide.
package cli
