// Tally prints what a "go test -json" says on its standard input as go test itself does,
// without what passed tests print, and keeps a tally in a file, to which several runs
// add:
//
//	go test -json ./... | tally -file F    print this run, and add it to F (several may at once)
//	tally -file F -sum                     list what was skipped and what failed, and count
//	tally -file F -again                   list the tests to run again
//	tally -file F -steady TEST             TEST passed then: it is unsteady, and has not failed
//	go test -exec "tally -file F -cost"    add the processor time of each package's tests to F
//
// A sum names the packages whose tests have used most processor time, where that was added. Its
// last line is "N passed, N failed, N skipped". Subtests count, a test that has them does not; a
// package that does not build counts as one failure. The exit status is 1 if the run, or the sum,
// has failures.
//
// Tests run again if other work on the machine may have made them fail: few have failed,
// and none with a data race, a panic or a sanitizer's finding. The list has a line for each: how
// often it is to run, the package, a pattern for go test -run, and the test as -steady wants it,
// with tabs between. With -race, a run's tests run again with the race detector, and their lines
// begin with "-race" and not "-".
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	var c command
	flag.StringVar(&c.file, "file", "", "the account")
	flag.BoolVar(&c.race, "race", false, "the run has the race detector")
	flag.BoolVar(&c.sum, "sum", false, "print what the account comes to")
	flag.BoolVar(&c.again, "again", false, "list the tests to run again")
	flag.StringVar(&c.steady, "steady", "", "the `test` passed when it was run again")
	counts := flag.Bool("cost", false, "run the test that the arguments are, and add what it costs")
	flag.Parse()
	if *counts {
		status, err := measureCost(c.file, flag.Args())
		if err != nil {
			fmt.Fprintln(os.Stderr, "tally:", err)
			status = 2
		}
		os.Exit(status)
	}
	ok, err := c.run(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// command is what the command line says.
type command struct {
	file             string
	race, sum, again bool
	steady           string
}

// run does it. ok: nothing has failed.
func (c command) run(in io.Reader, out io.Writer) (ok bool, err error) {
	if !c.sum && !c.again && c.steady == "" {
		return c.addRun(in, out)
	}
	a, err := loadAccount(c.file)
	if err != nil {
		return false, err
	}
	switch {
	case c.sum:
		err := printCosts(c.file, out)
		return a.printAccount(out), err
	case c.again:
		a.listAgain(out)
		return true, nil
	default:
		return true, errors.Join(a.recordPass(c.steady), a.storeAccount(c.file))
	}
}

// addRun prints a run, and adds it to the account, to which others may be added at the same time.
func (c command) addRun(in io.Reader, out io.Writer) (ok bool, err error) {
	now, err := readEvents(in, out)
	if err != nil {
		return false, err
	}
	if c.race {
		for i := range now.Failed {
			now.Failed[i].Race = true
		}
	}
	unlock, err := lockAccount(c.file)
	if err != nil {
		return false, err
	}
	defer unlock()
	a, err := loadAccount(c.file)
	if err != nil {
		return false, err
	}
	a.addAccount(now)
	return len(now.Failed) == 0, a.storeAccount(c.file)
}
