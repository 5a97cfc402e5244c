package suites

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/test/testlab"
)

var (
	suiteFlag    = flag.String("suite", "", "the suites of others to run, with commas: "+strings.Join(suiteNames(), " "))
	checkoutFlag = flag.String("checkout", "", "where the suite of -suite lies, built")
	modeFlag     = flag.String("mode", "plain,default,eager", "how the programs run: plain, default (exn-run), eager (every connection is offered at once, and waited for), early (offered at the first send), tight (that, and the smallest rings)")
	onlyFlag     = flag.String("only", "", "run only the units of a suite whose name this regular expression matches")
	skipFlag     = flag.String("skip", "^$", "leave out the units of a suite whose name this regular expression matches")
	repeatFlag   = flag.Int("repeat", 5, "how often a test that differs is run again, in each mode")
	jobsFlag     = flag.Int("jobs", runtime.NumCPU(), "how many units run at a time")
	unitTimeFlag = flag.Duration("unit.time", 5*time.Minute, "when a unit counts as hung")
	programsFlag = flag.String("programs", "", "run only the scenarios whose name this regular expression matches, also those that only -full runs")
	fullFlag     = flag.Bool("full", false, "large loads, and all scenarios")
	roundsFlag   = flag.Int("rounds", 3, "how often each load is timed, plain and direct by turns; 0: never")
	outFlag      = flag.String("out", "", "write the tables to this path with .txt and .json appended")
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if exnRunDir != "" {
		os.RemoveAll(exnRunDir)
	}
	os.Exit(code)
}

// exnRunDir is where buildExnRun has put it; "": nowhere.
var exnRunDir string

// buildExnRun builds exn-run once, for all users to execute, and returns its path.
var buildExnRun = sync.OnceValues(func() (string, error) {
	dir, err := testlab.Build("exn-run")
	exnRunDir = dir
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "exn-run")
	// It builds its library at the first use, in a cache: not in every box.
	if out, err := exec.Command(path, "--print-env").CombinedOutput(); err != nil {
		return "", fmt.Errorf("exn-run: %w\n%s", err, out)
	}
	return path, nil
})

// mode is how programs run.
type mode string

const (
	plain   mode = "plain"   // as they are
	normal  mode = "default" // under exn-run
	eagerly mode = "eager"   // under exn-run, each connection offered when it is made, and given 2 ms, all in all
	early   mode = "early"   // under exn-run, each connection offered at its first send
	tight   mode = "tight"   // the same with the smallest rings, which are often full, and go back to TCP
)

// modes returns those of -mode, plain first.
func modes() ([]mode, error) {
	var all []mode
	for name := range strings.SplitSeq(*modeFlag, ",") {
		switch m := mode(name); m {
		case plain, normal, eagerly, early, tight:
			all = append(all, m)
		default:
			return nil, fmt.Errorf("-mode: %q is none of plain, default, eager, early, tight", name)
		}
	}
	return all, nil
}

// env is what the library is told in a mode.
//
// eagerly makes as much direct as can be, of programs whose connections are short. Many tests have
// both ends in one thread and a deadline of 10 ms: a longer wait, in which the other end cannot
// answer, fails them.
func (m mode) env() []string {
	switch m {
	case eagerly:
		return []string{"EXNET_DS_SENDS=0", "EXNET_DS_BYTES=0", "EXNET_DS_WAIT=2"}
	case early:
		return []string{"EXNET_DS_SENDS=1"}
	case tight:
		return []string{"EXNET_DS_SENDS=1", "EXNET_DS_RING=65536", "EXNET_DS_SLOTS=16"}
	}
	return nil
}

// argv returns what runs a program so. report is where exn-run is to write what was direct; "": it
// becomes the program, as users run it.
func (m mode) argv(report string, argv []string) ([]string, error) {
	if m == plain {
		return argv, nil
	}
	path, err := buildExnRun()
	if err != nil {
		return nil, err
	}
	all := append([]string{"env"}, m.env()...)
	all = append(all, path, "--loopback")
	if report != "" {
		all = append(all, "--report", report)
	}
	if library := os.Getenv("EXN_E2E_LIBRARY"); library != "" { // such as one with sanitizers
		all = append(all, "--library", library)
	}
	return append(append(all, "--"), argv...), nil
}

// matcher returns the regular expression of a flag; "" matches all.
func matcher(t *testing.T, flagName, text string) *regexp.Regexp {
	t.Helper()
	re, err := regexp.Compile(text)
	if err != nil {
		t.Fatalf("-%s: %v", flagName, err)
	}
	return re
}

// commit says what is tested: the commit of a directory's checkout, with a + if it was changed; ""
// if it is none.
func commit(dir string) string {
	out, err := exec.CommandContext(context.Background(), "git", "-c", "safe.directory=*", "-C", dir, "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
