package bench

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"exnet/cmd/dsbench/internal/measure"
	"exnet/cmd/dsbench/internal/mpi"
	"exnet/cmd/dsbench/internal/paths"
	"exnet/cmd/dsbench/internal/programs"
	"exnet/cmd/dsbench/internal/udp"
	"exnet/internal/command"
)

// newRoot returns dsbench's commands, in the order of the help text.
func newRoot() *cobra.Command {
	var list strings.Builder
	for _, k := range paths.Kinds() {
		fmt.Fprintf(&list, "  %-10s %s\n", k.Name, k.About)
	}
	var modes []string
	for _, v := range paths.Variants {
		modes = append(modes, v.Name)
	}
	root := command.New("dsbench", "measure TCP and what replaces it side by side",
		"dsbench measures TCP and what replaces it over several paths side by side, in\ninterleaved runs.")
	root.Annotations = map[string]string{command.EndKey: fmt.Sprintf(`Paths:
%s  exn and exn-shm also take a receive mode, as in exn:busy: %s.

It sets up the paths itself and removes them. Without root it uses a user
namespace where that is allowed. Results go to standard output, all else to
standard error. It measures the distance of the two CPUs first, and shows it
with every result. It skips paths that cannot be set up here, and says so.
Exit status: 0 measured, 1 failed or interrupted (what was measured until then
is printed), or skipped a path that --paths names, 2 wrong usage.`, list.String(), strings.Join(modes, ", "))}
	for _, m := range allMeasures() {
		root.AddCommand(m.Command(distance))
	}
	root.AddCommand(newReport(), newReadme())
	var names []string
	for _, k := range paths.Kinds() {
		names = append(names, k.Name)
	}
	command.Values(root, map[string]cobra.CompletionFunc{
		"paths":      command.ListOf(names...),
		"control":    command.OneOf(names...),
		"congestion": command.Congestion,
		"cpus":       command.OneOf("any", "apart", "different", "same"),
	})
	return root
}

// allMeasures lists all that dsbench measures, in the order of the help text.
func allMeasures() (list []measure.Measure) {
	for _, m := range pathMeasures {
		list = append(list, m.asMeasure())
	}
	return append(append(list, programs.Measure(), udp.Measure, mpi.Measure), partMeasures...)
}

// partMeasures are those of parts of the project that can be deleted (housetest's TestParts).
var partMeasures []measure.Measure
