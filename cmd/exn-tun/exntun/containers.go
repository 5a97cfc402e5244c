package exntun

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"exnet/internal/cli"
	"exnet/internal/display"
	"exnet/node/control"
)

// nameWidth is how much of a container's name a line of 80 columns has room for.
const nameWidth = 22

// shortName leaves out the middle of a name that is too long: a pod's name tells at both ends.
func shortName(name string) string {
	r := []rune(name)
	if len(r) <= nameWidth {
		return name
	}
	head := nameWidth / 2
	return string(r[:head]) + "…" + string(r[len(r)-(nameWidth-head-1):])
}

// writeContainers writes a line for each container that an agent serves, in 80 columns, and reports
// whether there are any. Of sent and received, it counts what was direct.
func writeContainers(w io.Writer, all []*control.Sockets) bool {
	if len(all) == 0 {
		return false
	}
	fmt.Fprintf(w, "agent: direct sockets in %s; bytes direct, and by TCP\n", display.Count(len(all), "network namespace"))
	lines := []string{"name|ID|direct|sent|received|TCP"}
	for _, s := range all {
		direct, live := directOf(s)
		shadow := uint64(0)
		for _, c := range s.Connections {
			shadow += c.Sent.ShadowBytes + c.Received.ShadowBytes
		}
		lines = append(lines, fmt.Sprintf("%s|%s|%d/%d|%s|%s|%s", choose(s.Name == "", "-", shortName(printable(s.Name))), choose(s.Container == "", "-", printable(s.Container)),
			direct, live, display.Bytes(s.Direct.Sent.Bytes), display.Bytes(s.Direct.Received.Bytes), display.Bytes(shadow)))
	}
	(&table{w}).writeLines(lines...)
	for _, s := range all {
		for _, p := range s.Stays {
			fmt.Fprintf(w, "%s (%d) in %s%s%s\n", printable(p.Name), p.PID, printable(cmp.Or(s.Name, s.Container)), staysOnTCP, cli.Printable(p.Reason))
		}
	}
	return true
}

// agentSockets asks the brokers of an agent, the host's first; none: there is none that this user
// may ask.
func agentSockets() []*control.Sockets {
	all, err := control.Brokers()
	if err != nil { // --sockets says so
		return nil
	}
	all = slices.DeleteFunc(all, func(s *control.Sockets) bool { return s.Direct == nil })
	slices.SortFunc(all, func(a, b *control.Sockets) int {
		return cmp.Or(cmp.Compare(min(len(a.Container), 1), min(len(b.Container), 1)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Container, b.Container))
	})
	return all
}
