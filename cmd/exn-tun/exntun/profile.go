package exntun

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"exnet/fabric"
	"exnet/fabric/pattern"
	"exnet/fabric/pattern/pfprof"
	"exnet/fabric/profile"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/display"
	"exnet/internal/outfile"
	"exnet/internal/svgplot"
	"exnet/node/control"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// profileOptions are the flags of "exn-tun profile stop" and "read".
type profileOptions struct {
	nodeOptions
	out, heat, ring string // files
}

func newProfile() *cobra.Command {
	c := &cobra.Command{
		Use: "profile COMMAND [flags]", Short: "count who sends how much to whom",
		Long: `Counts who sends how much to whom: bytes and messages for each pair of nodes and
mailboxes, before they are cut into packets, with the sizes; multicasts apart.
All nodes that are up count, on this host and on those that it is linked with.`,
		Example: `exn-tun profile start
exn-tun profile stop -o run.json --svg heat.svg --chord chord.svg`,
		RunE: command.Choose,
	}
	c.AddCommand(
		newProfileCommand(control.ProfileStart, "begin to count, anew if it counts already"),
		newProfileCommand(control.ProfileRead, "write what was counted so far"),
		newProfileCommand(control.ProfileStop, "end, and write what was counted"))
	return c
}

func newProfileCommand(want, about string) *cobra.Command {
	var o profileOptions
	c := &cobra.Command{
		Use: want + " [flags]", Short: about, Args: command.NoArgs,
		Long: strings.ToUpper(about[:1]) + about[1:] + ".",
		RunE: func(c *cobra.Command, _ []string) error { return runProfile(programOf(c), want, o) },
	}
	if want != control.ProfileStart {
		cli.Group(c.Flags(), "Output", func(fs *pflag.FlagSet) {
			fs.StringVarP(&o.out, "output", "o", "", "`FILE` the counts in PFProf's form: .json, or .tar.gz with a file for each rank; - for standard output (as JSON)")
			fs.StringVar(&o.out, "out", "", "the former name of --output")
			_ = fs.MarkHidden("out") // it fails for a flag that is not there
			fs.StringVar(&o.heat, "svg", "", "`FILE` a heat map of nodes, from row to column")
			fs.StringVar(&o.ring, "chord", "", "`FILE` a circle with a ribbon for each pair of nodes")
		})
	}
	cli.Group(c.Flags(), "Nodes", o.defineFar)
	return c
}

func runProfile(p program, want string, o profileOptions) error {
	if want != control.ProfileStart && o.out+o.heat+o.ring == "" {
		return cli.Usagef("name a file for the counts with -o, --svg or --chord")
	}
	if err := o.findDirectory(); err != nil {
		return err
	}
	all, err := o.nodesEverywhere()
	if err != nil {
		return err
	}
	rec := newTraffic()
	for _, n := range all.nodes {
		counted, err := askOf(all, n, func(c *control.Client) (*control.Profile, error) { return c.Profile(want) })
		if err != nil {
			return err
		}
		rec.addProfile(n, counted)
	}
	if want == control.ProfileStart {
		return nil
	}
	return rec.writeProfile(p, o)
}

// traffic joins what the nodes have counted.
type traffic struct {
	ends       map[endpoint]bool
	flows      []control.ProfileFlow
	multicasts []control.ProfileMulticast
	seconds    float64
}

// endpoint is a mailbox.
type endpoint struct {
	node fabric.NodeID
	vpid fabric.VPID
}

func newTraffic() *traffic { return &traffic{ends: make(map[endpoint]bool)} }

// addProfile adds what a node has counted.
func (r *traffic) addProfile(n fabric.NodeID, p *control.Profile) {
	if p == nil {
		return
	}
	r.seconds = max(r.seconds, p.Seconds)
	for _, f := range p.Flows {
		r.ends[endpoint{f.Src, f.SrcVPID}], r.ends[endpoint{f.Dst, f.DstVPID}] = true, true
	}
	for _, m := range p.Multicasts {
		r.ends[endpoint{m.Src, m.SrcVPID}] = true
	}
	r.flows, r.multicasts = append(r.flows, p.Flows...), append(r.multicasts, p.Multicasts...)
	for e := range r.ends {
		if e.node == n {
			return
		}
	}
	r.ends[endpoint{n, 0}] = true // a node that was silent has a rank, too
}

// profileProcesses returns the traffic in PFProf's form: a rank for each mailbox, in the
// order of nodes and VPIDs.
func (r *traffic) profileProcesses() []pfprof.Process {
	var ends []endpoint
	for e := range r.ends {
		ends = append(ends, e)
	}
	slices.SortFunc(ends, func(a, b endpoint) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.vpid, b.vpid)) })
	rank := make(map[endpoint]int)
	all := make([]pfprof.Process, len(ends))
	tx, rx := make([]map[uint64]uint64, len(ends)), make([]map[uint64]uint64, len(ends))
	for i, e := range ends {
		rank[e] = i
		tx[i], rx[i] = make(map[uint64]uint64), make(map[uint64]uint64)
		list := func() []uint64 { return make([]uint64, len(ends)) }
		all[i] = pfprof.Process{
			Description: "exn-tun profile", Rank: i, Procs: len(ends), Name: fmt.Sprintf("node %d vpid %d", e.node, e.vpid), Duration: r.seconds,
			TxBytes: list(), RxBytes: list(), TxMessages: list(), RxMessages: list(), WireBytes: list(), WirePackets: list(),
			Node: new(int(e.node)), VPID: new(int(e.vpid)),
		}
	}
	for _, f := range r.flows {
		from, to := rank[endpoint{f.Src, f.SrcVPID}], rank[endpoint{f.Dst, f.DstVPID}]
		all[from].TxBytes[to] += f.Bytes()
		all[to].RxBytes[from] += f.Bytes()
		all[from].TxMessages[to] += f.Messages()
		all[to].RxMessages[from] += f.Messages()
		all[from].WireBytes[to] += f.Wire.Bytes
		all[from].WirePackets[to] += f.Wire.Packets
		if f.Class != 0 {
			c := classOf(&all[from], int(f.Class))
			c.Bytes[to] += f.Bytes()
			c.Messages[to] += f.Messages()
		}
		for _, s := range f.Sizes {
			tx[from][s.Size] += s.Count
			rx[to][s.Size] += s.Count
		}
	}
	for _, m := range r.multicasts {
		from := rank[endpoint{m.Src, m.SrcVPID}]
		c := pfprof.TreeCount{}
		for _, n := range m.Members {
			c.Members = append(c.Members, int(n))
		}
		f := profile.Flow{Sizes: m.Sizes}
		c.Messages, c.Bytes = f.Messages(), f.Bytes()
		all[from].Trees = append(all[from].Trees, c)
	}
	for i := range all {
		all[i].TxSizes, all[i].RxSizes = pfprof.Sizes(tx[i]), pfprof.Sizes(rx[i])
		for _, s := range all[i].TxSizes {
			all[i].Events += s.Count
		}
		for _, s := range all[i].RxSizes {
			all[i].Events += s.Count
		}
	}
	return all
}

// classOf returns the count of what a rank has sent in a class. It adds a missing count.
func classOf(p *pfprof.Process, class int) *pfprof.ClassCount {
	at, ok := slices.BinarySearchFunc(p.Classes, class, func(c pfprof.ClassCount, class int) int { return cmp.Compare(c.Class, class) })
	if !ok {
		p.Classes = slices.Insert(p.Classes, at, pfprof.ClassCount{Class: class, Bytes: make([]uint64, p.Procs), Messages: make([]uint64, p.Procs)})
	}
	return &p.Classes[at]
}

func (r *traffic) writeProfile(p program, o profileOptions) error {
	all := r.profileProcesses()
	var errs []error
	switch form := pfprof.WriteJSON; {
	case o.out == "-":
		errs = append(errs, form(p.stdout, all))
	case o.out != "":
		if strings.HasSuffix(o.out, ".gz") || strings.HasSuffix(o.out, ".tgz") {
			form = pattern.WriteArchive
		}
		errs = append(errs, outfile.Write(o.out, func(w io.Writer) error { return form(w, all) }))
	}
	m := matrixOf(all)
	for _, d := range []struct {
		file string
		draw func() string
	}{{o.heat, m.Heat}, {o.ring, m.Chord}} {
		if d.file == "" {
			continue
		}
		if len(m.Names) > svgplot.MaxMatrix {
			errs = append(errs, fmt.Errorf("%s: %d nodes are too many to draw; the limit is %d", d.file, len(m.Names), svgplot.MaxMatrix))
			continue
		}
		errs = append(errs, outfile.Write(d.file, func(w io.Writer) error {
			_, err := io.WriteString(w, d.draw())
			return err
		}))
	}
	return errors.Join(errs...)
}

// matrixOf returns the bytes sent from node to node.
func matrixOf(all []pfprof.Process) svgplot.Matrix {
	at := make(map[int]int)
	m := svgplot.Matrix{Title: "Bytes from node to node", Note: "direct sockets in shared memory are not in it: see exn-run --profile",
		Format: func(v float64) string { return display.Bytes(uint64(v)) }}
	for _, p := range all {
		if _, ok := at[*p.Node]; !ok {
			at[*p.Node] = len(m.Names)
			m.Names = append(m.Names, fmt.Sprint(*p.Node))
		}
	}
	for range m.Names {
		m.Values = append(m.Values, make([]float64, len(m.Names)))
	}
	for _, p := range all {
		for to, n := range p.TxBytes {
			m.Values[at[*p.Node]][at[*all[to].Node]] += float64(n)
		}
	}
	return m
}
