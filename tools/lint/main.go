// Lint is staticcheck, with the analyzers of go vet and gVisor's checklocks beside its own. One
// command reads the packages and what they import once; three would do it three times, which takes
// most of their time where the build cache is empty, as in CI.
package main

import (
	"log"
	"os"

	"golang.org/x/tools/go/analysis/suite/vet"
	"gvisor.dev/gvisor/tools/checklocks"
	"honnef.co/go/tools/lintcmd"
	"honnef.co/go/tools/lintcmd/version"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

func main() {
	// Checklocks goes by the annotations alone: what it infers without them is rarely right.
	for _, name := range []string{"inferred", "wrappers"} {
		if err := checklocks.Analyzer.Flags.Set(name, "false"); err != nil {
			log.Fatalf("lint: checklocks has no flag %s: %v", name, err)
		}
	}
	cmd := lintcmd.NewCommand("lint")
	cmd.SetVersion(version.Version, version.MachineVersion)
	cmd.ParseFlags(os.Args[1:])
	cmd.AddBareAnalyzers(vet.Suite...)
	cmd.AddBareAnalyzers(checklocks.Analyzer)
	cmd.AddAnalyzers(simple.Analyzers...)
	cmd.AddAnalyzers(staticcheck.Analyzers...)
	cmd.AddAnalyzers(stylecheck.Analyzers...)
	cmd.AddAnalyzers(unused.Analyzer)
	cmd.Run()
}
