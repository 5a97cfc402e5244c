package exntun

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"exnet/fabric"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/display"
	"exnet/node/control"

	"github.com/spf13/cobra"
)

// writePorts writes the ports of a node for people.
func writePorts(w io.Writer, s *control.Ports) {
	fmt.Fprintf(w, "node %d: %d ports of programs\n", s.Node, len(s.Ports))
	t := table{w: w}
	lines := []string{"VPID|unit|process|user|registered|peers|waiting|sent|received|put|got|waits|errors"}
	for _, p := range s.Ports {
		process := choose(p.Program == "", "?", printable(p.Program))
		if p.PID != 0 {
			process += "/" + strconv.Itoa(p.PID)
		}
		c := p.Counters
		lines = append(lines, fmt.Sprintf("%d|%s|%s|%d|%s|%d|%d of %d|%d|%d|%s|%s|%d|%d", p.VPID, p.Unit, process, p.UID, display.Bytes(c.Registered),
			p.Peers, p.Queued, p.Slots, c.Sent, c.Received, display.Bytes(c.PutBytes), display.Bytes(c.GetBytes), c.Waits, c.Errors))
	}
	t.writeRows("ports", lines...)
}

// registersOptions are the flags of "exn-tun registers".
type registersOptions struct {
	nodeOptions
	json bool
	set  string
}

func newRegisters() *cobra.Command {
	var o registersOptions
	c := &cobra.Command{
		Use: "registers [NODE] [flags]", Short: "show the register file of a node, or change a register",
		Long: `Shows the register file of a node's NIC, as the programs that open ports there
or anywhere in the fabric read it by remote register access: address, name and
value. Root may write the registers of the receive mode.`,
		Example: `exn-tun registers 1
exn-tun registers 1 --set receive.coalesce_usecs=50
exn-tun registers --json | jq '.[].registers[] | select(.name == "velo.sent")'`,
		Args: command.Arguments,
		RunE: func(c *cobra.Command, args []string) error { return runRegisters(programOf(c), o, args) },
	}
	fs := c.Flags()
	fs.StringVar(&o.set, "set", "", "`NAME=VALUE` write a register first")
	fs.BoolVar(&o.json, "json", false, "one JSON array with an object for each node")
	o.defineFlags(fs)
	return c
}

func runRegisters(p program, o registersOptions, args []string) error {
	if len(args) == 1 {
		n, err := strconv.ParseUint(args[0], 10, 16)
		if err != nil {
			return cli.Usagef("%q is not a node ID", args[0])
		}
		o.node = new(fabric.NodeID(n))
	}
	if err := o.findDirectory(); err != nil {
		return err
	}
	set, err := parseRegister(o.set)
	if err != nil {
		return err
	}
	if set != nil && o.node == nil {
		return cli.Usagef("name the node whose register to write")
	}
	all, err := askAll(o.nodeOptions, func(c *control.Client) (*control.Registers, error) { return c.Registers(set) })
	return printAll(p.stdout, all, err, o.json, writeRegisters)
}

// parseRegister parses NAME=VALUE. It returns nil if text is empty.
func parseRegister(text string) (*control.SetRegister, error) {
	if text == "" {
		return nil, nil
	}
	name, value, ok := strings.Cut(text, "=")
	v, err := strconv.ParseUint(value, 0, 64)
	if !ok || err != nil {
		return nil, cli.Usagef("--set %s: use NAME=VALUE, such as receive.coalesce_usecs=50", text)
	}
	return &control.SetRegister{Name: name, Value: v}, nil
}

func writeRegisters(w io.Writer, s *control.Registers) {
	fmt.Fprintf(w, "node %d\n", s.Node)
	t := table{w: w}
	lines := []string{"address|name|value|"}
	for _, r := range s.Registers {
		lines = append(lines, fmt.Sprintf("%#06x|%s|%d|%s", r.Addr, r.Name, r.Value, choose(r.Writable, "root writes", "")))
	}
	t.writeRows("registers", lines...)
}
