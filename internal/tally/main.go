// Tally prints what a "go test -json" says on its standard input as go test itself does,
// without what passed tests print, and keeps account of it in a file, to which several
// runs add:
//
//	go test -json ./... | tally -file F    print this run, and add it to F
//	tally -file F -sum                     list what was skipped and what failed, and count
//
// The last line of a sum is "N passed, N failed, N skipped". A test with subtests is not
// counted, they are; a package that does not build is one that failed. With a run that
// failed, and a sum that has failures, the exit status is 1.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	file := flag.String("file", "", "the account")
	sum := flag.Bool("sum", false, "print what the account comes to")
	flag.Parse()
	ok, err := run(*file, *sum)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run does what the command line says. ok: nothing has failed.
func run(file string, sum bool) (ok bool, err error) {
	before, err := load(file)
	if err != nil {
		return false, err
	}
	if sum {
		return before.print(os.Stdout), nil
	}
	now, err := read(os.Stdin, os.Stdout)
	if err != nil {
		return false, err
	}
	before.add(now)
	return len(now.Failed) == 0, before.store(file)
}
