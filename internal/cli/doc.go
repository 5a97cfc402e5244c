// Package cli is the common part of all command lines: it defines and explains flags,
// parses values, reports errors, and has the exit statuses.
//
// # Architecture
//
//	command's flags (pflag) ► Group, Number, Size ► Help ► -h, man page
//	error of any package    ► Text                ► one line on standard error
//
// A flag's usage begins with the name of its value in back quotes, and ends with its
// default in parentheses:
//
//	fs.IntVar(&o.runs, "runs", 5, "`N` runs of each path (5)")
//
// It does not use cobra (see package command), since exn-run does without it.
//
// # Concurrency
//
// A FlagSet is for one goroutine; everything else may be called from many.
//
// # Limits
//
// Help is 80 columns wide.
package cli
