package exntun

import (
	"fmt"
	"io"
	"strings"

	"exnet/directsockets/broker/connstats"
	"exnet/internal/display"
	"exnet/node/control"
)

// writeSockets writes the connections of a node's programs as text, how they move, and their
// messages if all is set.
func writeSockets(w io.Writer, s *control.Sockets, m *moves, all bool) {
	if s.Broker == "" {
		fmt.Fprintf(w, "node %d: another broker serves its namespace\n", s.Node)
		return
	}
	direct := 0
	for _, c := range s.Connections {
		if c.Mode == connstats.ModeDirect.String() {
			direct++
		}
	}
	whose := choose(s.Node == 0, containerOf(s.Whose), fmt.Sprintf("node %d", s.Node))
	fmt.Fprintf(w, "%s, broker %s: %d of %d connections are direct\n", whose, printable(s.Broker), direct, len(s.Connections))
	t := table{w: w}
	lines := []string{"local|remote|side|process|device|mode|ring|sent|shadow|received|shadow"}
	messages := []string{"local|remote||zero copy|VELO|VELO_LAST|RMA_INFO|RMA_AVAIL|SHUTDOWN|DEMOTE"}
	for _, c := range s.Connections {
		lines = append(lines, fmt.Sprintf("%v|%v|%s|%s|%d|%s|%s|%s|%s|%s|%s", c.Local, c.Remote, sideOf(c),
			processOf(c), c.Device, c.Mode+throughOf(c)+whyOf(c), fillOf(c),
			display.Bytes(c.Sent.DirectBytes), display.Bytes(c.Sent.ShadowBytes),
			display.Bytes(c.Received.DirectBytes), display.Bytes(c.Received.ShadowBytes)))
		messages = append(messages,
			fmt.Sprintf("%v|%v|sent|%s", c.Local, c.Remote, messagesOf(c.Sent)),
			"||received|"+messagesOf(c.Received))
	}
	t.writeRows("sockets", lines...)
	moving := []string{movesHeader}
	for i := range s.Connections {
		if row := m.rowOf(keyOf(&s.Connections[i])); row != "" {
			moving = append(moving, row)
		}
	}
	if len(moving) > 1 {
		t.writeRows("movement", moving...)
	}
	if all {
		t.writeRows("messages", messages...)
	}
}

// containerOf names the container that a broker is for, by its ID and its name.
func containerOf(w control.Whose) string {
	switch {
	case w == control.Whose{}:
		return "no node"
	case w.Container == "":
		return printable(w.Name)
	case w.Name == "":
		return "container " + printable(w.Container)
	}
	return fmt.Sprintf("container %s (%s)", printable(w.Container), printable(w.Name))
}

// sideOf is which end it is.
func sideOf(c connstats.Connection) string {
	if c.UDP {
		return choose(c.Server, "udp receiver", "udp sender")
	}
	return choose(c.Server, "server", "client")
}

// whyOf says why a connection is in its mode, and which rule of exn-tun direct decides about it.
func whyOf(c connstats.Connection) string {
	why := c.Reason
	if c.Rule != "" {
		why += choose(why == "", "", ": ") + printableRule(c.Rule)
	}
	return choose(why == "", "", " ("+why+")")
}

// printableRule is printable, and leaves spaces.
func printableRule(rule string) string {
	words := strings.Fields(rule)
	for i := range words {
		words[i] = printable(words[i])
	}
	return strings.Join(words, " ")
}

// throughOf says what a direct connection goes through, and why that is not memory.
func throughOf(c connstats.Connection) string {
	switch {
	case c.Path == connstats.PathMemory.String():
		return ", shm"
	case c.Path != connstats.PathFabric.String():
		return ""
	case c.RDMA:
		return ", fabric (RDMA hardware)"
	}
	return ", fabric (--direct)"
}

// processOf names the owner of a connection.
func processOf(c connstats.Connection) string {
	name := choose(c.Program == "", "?", printable(c.Program))
	if c.PID == 0 { // it is in a PID namespace that the broker does not see
		return name
	}
	return fmt.Sprintf("%s/%d", name, c.PID)
}

// printable replaces characters that could disturb the terminal or the table: any user can
// choose such a name.
func printable(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c <= ' ' || c > '~' || c == '|' {
			b[i] = '?'
		}
	}
	return string(b)
}

// fillOf says how full the outbound ring is.
func fillOf(c connstats.Connection) string {
	if c.RingSize == 0 {
		return "-"
	}
	return fmt.Sprintf("%d %%", 100*min(c.RingUsed, c.RingSize)/c.RingSize)
}

func messagesOf(t connstats.Traffic) string {
	return fmt.Sprintf("%s|%d|%d|%d|%d|%d|%d", display.Bytes(t.ZeroCopyBytes), t.VELO, t.VELOLast, t.RMAInfo, t.RMAAvail, t.Shutdown, t.Demote)
}
