package exntun

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"exnet/fabric"
	"exnet/fabric/graph"
	"exnet/fabric/pattern"
	"exnet/fabric/pattern/pfprof"
	"exnet/fabric/routing"
	"exnet/fabric/topo"
	"exnet/internal/cli"
	"exnet/internal/command"
	"exnet/internal/display"
	"exnet/internal/infile"
	"exnet/internal/outfile"
	"exnet/internal/svgplot"
	"exnet/node/control"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// pageOptions are the flags of "exn-tun route page".
type pageOptions struct {
	nodeOptions
	profile, before, after, out string // files
	every                       time.Duration
}

func newRoutePage() *cobra.Command {
	var o pageOptions
	c := &cobra.Command{
		Use: "page [flags]", Short: "show a profile, its simulation, the reservations and the loads",
		Long: `Writes a page: who sent how much to whom, how each router would route it, the
reserved routes, and the loads of the links before and after. A load is the
difference of two outputs of exn-tun topo --json, or the growth since one.`,
		Example: "exn-tun route page --profile run.json --before 0.json,1.json -o page.html",
		Args:    command.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.profile == "" || o.out == "" {
				return cli.Usagef("name the profile with --profile, and the page with -o")
			}
			if err := o.findDirectory(); err != nil {
				return err
			}
			return o.writePages(c.Context())
		},
	}
	cli.Group(c.Flags(), "What", func(fs *pflag.FlagSet) {
		fs.StringVar(&o.profile, "profile", "", "`FILE` what exn-tun profile has recorded, as .json or .tar.gz")
		fs.StringVar(&o.before, "before", "", "`FROM,TO` files of exn-tun topo --json: what the links carried by the tables")
		fs.StringVar(&o.after, "after", "", "`FROM[,TO]` the same with the reservations; without TO until now")
		fs.StringVarP(&o.out, "output", "o", "", "`FILE` the page, .html")
		fs.DurationVar(&o.every, "every", 0, "`TIME` write it anew so often, until interrupted; the page loads itself again (once)")
	})
	cli.Group(c.Flags(), "Nodes", func(fs *pflag.FlagSet) { fabricFlags(fs, &o.fabric, &o.dir) })
	return c
}

// writePages writes the page, once or repeatedly.
func (o pageOptions) writePages(ctx context.Context) error {
	for {
		p, err := o.gatherPage()
		if err != nil {
			return err
		}
		// A browser never sees half a page.
		if err := outfile.Write(o.out, func(w io.Writer) error { return pageText.Execute(w, p) }); err != nil || o.every <= 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.every):
		}
	}
}

// routePage is what the page shows.
type routePage struct {
	Profile, Network, Time string
	Refresh                int // seconds; 0: never
	Heat, Routers          template.HTML
	Best                   string
	Overrides              []pageOverride
	More                   int // overrides that are not in the list
	Cut                    int
	Loads                  []*pageLoad
	Changes                []string // what the reserved routes have made better or worse
	Channels               []pageChannel
}

// pageOverride is a line of the table of reservations.
type pageOverride struct{ Reservation, From, To, Class, Route string }

// pageLoad is the load of all links at some time.
type pageLoad struct {
	Title, About, Most, All string
	Drawing                 template.HTML
	load                    []topo.LinkLoad
	peakBytes               uint64 // bytes of the busiest channel
	flows                   bool   // load counts flows, not packets
}

// pageChannel is the busiest channels' load each time.
type pageChannel struct {
	Name      string
	Loads     []string
	peakBytes uint64
}

// Limits of the page's tables.
const (
	maxPageOverrides = 200
	maxPageChannels  = 12
)

// gatherPage asks the nodes and simulates.
func (o pageOptions) gatherPage() (*routePage, error) {
	f, err := routesOf(o.nodeOptions)
	if err != nil {
		return nil, err
	}
	all, err := pattern.ReadProcesses(o.profile)
	if err != nil {
		return nil, err
	}
	flows, err := flowsOf(filepath.Base(o.profile), onWire(all), f.topo)
	if err != nil {
		return nil, err
	}
	existing, err := f.firstOverrides()
	if err != nil {
		return nil, err
	}
	p := &routePage{
		Profile: filepath.Base(o.profile), Network: f.topo.String(), Time: time.Now().UTC().Format(time.DateTime + " UTC"),
		Refresh: int(o.every.Round(time.Second).Seconds()), Heat: template.HTML(heatOf(all)), // svgplot escapes what it is given
	}
	if p.Refresh == 0 && o.every > 0 {
		p.Refresh = 1
	}
	if err := p.compareRouters(f.routes, flows); err != nil {
		return nil, err
	}
	p.listReservations(f)
	p.addPrediction("simulated, by the tables", f.routes, flows)
	var up []topo.Override
	for _, v := range existing {
		if _, err := f.routes.With([]topo.Override{v}); err == nil {
			up = append(up, v)
		}
	}
	with, err := f.routes.With(up)
	if err != nil {
		return nil, err
	}
	p.addPrediction("simulated, with the reserved routes", with, flows)
	for _, m := range []struct{ title, files string }{{"counted by the links, before", o.before}, {"counted by the links, after", o.after}} {
		if err := p.addMeasured(m.title, m.files, f.topo, o.nodeOptions); err != nil {
			return nil, err
		}
	}
	return p, p.drawLoads(f.routes)
}

// heatOf draws the traffic between the nodes of a recording, "" if there are too many to draw.
// Ranks without a node get nodes 1, 2 and so on.
func heatOf(all []pfprof.Process) string {
	for i := range all {
		if all[i].Node == nil {
			all[i].Node = new(all[i].Rank + 1)
		}
	}
	m := matrixOf(all)
	m.Note = "" // exn-run's recordings have direct sockets, too
	if len(m.Names) <= svgplot.MaxMatrix {
		return m.Heat()
	}
	return ""
}

// onWire returns a recording with the bytes on the wire in place of those that programs sent,
// if the recording has them.
func onWire(all []pfprof.Process) []pfprof.Process {
	wire := slices.Clone(all)
	for i, p := range all {
		if len(p.WireBytes) != len(all) {
			return all
		}
		wire[i].TxBytes = p.WireBytes
	}
	return wire
}

// compareRouters compares the largest link load of the flows by router.
func (p *routePage) compareRouters(routes *topo.Routes, flows []routing.Flow) error {
	g, err := graph.FromTopology(routes.Topology().String(), routes)
	if err != nil {
		return err
	}
	bars := svgplot.Bars{Title: "Largest load of a link by router", X: svgplot.Axis{Label: "largest load of a link, of that by the tables"}}
	most := make(map[string]uint64)
	best := "tables"
	for _, name := range []string{"tables", "dmodk", "smodk", "random", "minsum", "minmax", "refine"} {
		l, err := loadOf(g, name, flows, func(routing.Flow, []int32) {})
		if err != nil {
			return err
		}
		most[name] = slices.Max(append(l.Peak, 0))
		if most[name] < most[best] {
			best = name
		}
		bars.Bars = append(bars.Bars, svgplot.Bar{Name: name, Value: float64(most[name]) / float64(max(most["tables"], 1))})
	}
	p.Routers = template.HTML(bars.SVG()) // svgplot escapes what it is given
	p.Best = bestOf(len(flows), best, most)
	return nil
}

// bestOf says in a sentence which router's busiest link carries the least.
func bestOf(flows int, best string, most map[string]uint64) string {
	text := fmt.Sprintf("%d flows between nodes. By the tables the busiest link carries %s", flows, display.Bytes(most["tables"]))
	if best == "tables" {
		return text + "; no router does better."
	}
	return text + fmt.Sprintf("; the best router is %s, with %s.", best, display.Bytes(most[best]))
}

// listReservations lists the overrides of the first node.
func (p *routePage) listReservations(f *fabricRoutes) {
	for _, s := range f.reservations[0].List {
		for _, o := range s.Overrides {
			if o.Cut {
				p.Cut++
			}
			if len(p.Overrides) == maxPageOverrides {
				p.More++
				continue
			}
			line := pageOverride{Reservation: s.ID, From: fmt.Sprint(o.From), To: fmt.Sprint(o.To), Class: "any", Route: fmt.Sprint(o.From)}
			if o.Class != 0 {
				line.Class = fmt.Sprint(o.Class)
			}
			at := o.From
			for _, port := range o.Ports {
				if e, ok := neighbourAt(f.topo, at, port); ok {
					at = e
					line.Route += fmt.Sprintf(" → %d", at)
				}
			}
			p.Overrides = append(p.Overrides, line)
		}
	}
}

func neighbourAt(t *topo.Topology, n fabric.NodeID, port string) (fabric.NodeID, bool) {
	parsed, err := topo.ParsePort(port)
	if err != nil {
		return 0, false
	}
	e, ok := t.Neighbour(n, parsed)
	return e.Node, ok
}

// addPrediction adds the load that flows put on the links along routes.
func (p *routePage) addPrediction(title string, r *topo.Routes, flows []routing.Flow) {
	nodes := r.Topology().Nodes()
	l := topo.NewLoad(r.Topology())
	for _, f := range flows {
		r.Carry(l, nodes[f.From], nodes[f.To], 1, f.Bytes)
	}
	p.Loads = append(p.Loads, &pageLoad{Title: title, load: l.Links(), flows: true})
}

// addMeasured adds what the links counted between two files, or since one.
func (p *routePage) addMeasured(title, files string, t *topo.Topology, o nodeOptions) error {
	if files == "" {
		return nil
	}
	names := strings.Split(files, ",")
	if len(names) > 2 || len(names) == 1 && strings.HasSuffix(title, "before") {
		return cli.Usagef("%s: name two files, FROM,TO", files)
	}
	var loads [2][]topo.LinkLoad
	for i, name := range names {
		var err error
		if loads[i], err = readLoad(name, t); err != nil {
			return err
		}
	}
	if len(names) == 1 {
		now, err := topologyOf(o)
		if err != nil {
			return err
		}
		loads[1] = now.load
	}
	m := &pageLoad{Title: title, load: make([]topo.LinkLoad, len(loads[0]))}
	for i := range m.load {
		from, to := loads[0][i], loads[1][i]
		if to.AB.Bytes < from.AB.Bytes || to.BA.Bytes < from.BA.Bytes {
			return fmt.Errorf("%s: a link carried less in the second than in the first: were nodes restarted?", files)
		}
		m.load[i] = to.Since(from)
	}
	p.Loads = append(p.Loads, m)
	return nil
}

// readLoad reads a file of exn-tun topo --json.
func readLoad(name string, want *topo.Topology) ([]topo.LinkLoad, error) {
	data, err := infile.Read(name)
	if err != nil {
		return nil, err
	}
	var f control.Topology
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("%s: not the output of exn-tun topo --json: %w", name, err)
	}
	t, load, err := f.Build()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if t.String() != want.String() || len(load) != len(want.Links()) {
		return nil, fmt.Errorf("%s: it describes %v, but the nodes that are up form %v: record it again", name, t, want)
	}
	return load, nil
}

// drawLoads draws all loads on one scale, and fills the table of the busiest channels.
func (p *routePage) drawLoads(routes *topo.Routes) error {
	t, peak := routes.Topology(), uint64(0)
	for _, l := range p.Loads {
		for _, c := range l.load {
			peak = max(peak, c.AB.Bytes, c.BA.Bytes)
		}
	}
	for _, l := range p.Loads {
		var all, most uint64
		where := "none"
		for i, c := range l.load {
			link := t.Links()[i]
			for k, n := range []uint64{c.AB.Bytes, c.BA.Bytes} {
				all += n
				if n > most {
					most, where = n, channelName(link, k)
				}
			}
		}
		l.peakBytes, l.Most, l.All = most, display.Bytes(most), display.Bytes(all)
		l.About = fmt.Sprintf("most %s (%s), all links %s", l.Most, where, l.All)
		if len(t.Nodes()) <= topo.MaxDrawn {
			var b bytes.Buffer
			if err := (&topo.Drawing{Topology: t, Routes: routes, Load: l.load, Flows: l.flows, Peak: peak}).WriteSVG(&b); err != nil {
				return err
			}
			l.Drawing = template.HTML(b.String()) // topo escapes names
		}
	}
	for i := 0; i+1 < len(p.Loads); i += 2 { // simulated, and counted if both were given
		p.Changes = append(p.Changes, changeOf(p.Loads[i], p.Loads[i+1]))
	}
	p.fillBusiest(t)
	return nil
}

// changeOf says in a sentence what became of the busiest link's load, as the page shows it.
func changeOf(before, after *pageLoad) string {
	how, _, _ := strings.Cut(before.Title, ",")
	text := fmt.Sprintf("With the reserved routes the busiest link carries %s instead of %s", after.Most, before.Most)
	change := "less"
	if after.peakBytes > before.peakBytes {
		change = "more"
	}
	switch share := display.Percent(math.Abs(float64(after.peakBytes)-float64(before.peakBytes)) / float64(before.peakBytes)); {
	case after.Most == before.Most:
		text = "With the reserved routes the busiest link carries as much as without, " + after.Most
	case before.peakBytes > 0 && share != display.Percent(0):
		text += fmt.Sprintf(": %s %s", share, change)
	}
	return text + " (" + how + ")."
}

func channelName(l topo.Link, back int) string {
	if back == 1 {
		l.A, l.B = l.B, l.A
	}
	return fmt.Sprintf("%d → %d", l.A.Node, l.B.Node)
}

// fillBusiest fills the table of the channels that carried most at any time. Those that carried
// nothing are not in it.
func (p *routePage) fillBusiest(t *topo.Topology) {
	for i, link := range t.Links() {
		for k := range 2 {
			c := pageChannel{Name: channelName(link, k)}
			for _, l := range p.Loads {
				n := l.load[i].AB.Bytes
				if k == 1 {
					n = l.load[i].BA.Bytes
				}
				c.peakBytes = max(c.peakBytes, n)
				c.Loads = append(c.Loads, display.Bytes(n))
			}
			if c.peakBytes > 0 {
				p.Channels = append(p.Channels, c)
			}
		}
	}
	slices.SortStableFunc(p.Channels, func(a, b pageChannel) int { return cmp.Compare(b.peakBytes, a.peakBytes) })
	p.Channels = p.Channels[:min(len(p.Channels), maxPageChannels)]
}

var pageText = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
{{if .Refresh}}<meta http-equiv="refresh" content="{{.Refresh}}">{{end}}
<title>{{.Profile}} on {{.Network}}</title>
<style>
:root{color-scheme:light dark;--ink:#222;--soft:#555;--rule:#ddd;--page:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--soft:#aaa;--rule:#444;--page:#16181c}}
body{font:15px/1.45 system-ui,sans-serif;max-width:1180px;margin:2em auto;padding:0 1em;color:var(--ink);background:var(--page)}
h1{margin-bottom:.1em;overflow-wrap:anywhere}h2{margin-top:1.6em}p.note{color:var(--soft);margin-top:.2em}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:1.2em;align-items:start}
figure{margin:0;border:1px solid var(--rule);border-radius:6px;padding:10px;overflow-x:auto;background:#fff;color:#222}
figure svg{display:block;margin:auto;max-width:100%;height:auto}figcaption{font-weight:600}figcaption span{font-weight:400;color:#555;display:block}
table{border-collapse:collapse;font-size:13px}td,th{padding:3px 10px;border-bottom:1px solid var(--rule);text-align:right}
td.t,th.t{text-align:left}.wide{overflow-x:auto}.scroll{max-height:24em;max-width:100%;overflow:auto;display:inline-block;border:1px solid var(--rule);border-radius:6px}
@media print{:root{--ink:#222;--soft:#555;--rule:#ddd;--page:#fff}.scroll{max-height:none}figure{break-inside:avoid}}
</style></head><body>
<h1>{{.Profile}} on {{.Network}}</h1>
<p class="note">{{.Time}}{{if .Refresh}}; loads itself again{{end}}</p>
<h2>Who sends how much to whom, and what routers make of it</h2>
<p>{{.Best}}</p>
<div class="pair"><figure>{{.Heat}}</figure><figure>{{.Routers}}</figure></div>
<h2>Links</h2>
{{range .Changes}}<p>{{.}}</p>
{{end}}<p class="note">All drawings have one scale. Simulated loads are of the profile alone; links count all that crosses them.</p>
<div class="pair">{{range .Loads}}<figure><figcaption>{{.Title}}<span>{{.About}}</span></figcaption>{{.Drawing}}</figure>
{{end}}</div>
<h2>The busiest links</h2>
<div class="wide"><table><tr><th class="t">from, to</th>{{range .Loads}}<th>{{.Title}}</th>{{end}}</tr>
{{range .Channels}}<tr><td class="t">{{.Name}}</td>{{range .Loads}}<td>{{.}}</td>{{end}}</tr>
{{end}}<tr><td class="t">most</td>{{range .Loads}}<td>{{.Most}}</td>{{end}}</tr>
<tr><td class="t">all links</td>{{range .Loads}}<td>{{.All}}</td>{{end}}</tr></table></div>
<h2>Reserved routes</h2>
{{if .Overrides}}{{if .Cut}}<p>{{.Cut}} cross a link that is down, and go as the tables say.</p>{{end}}
<div class="scroll"><table><tr><th class="t">reservation</th><th>from</th><th>to</th><th>class</th><th class="t">route</th></tr>
{{range .Overrides}}<tr><td class="t">{{.Reservation}}</td><td>{{.From}}</td><td>{{.To}}</td><td>{{.Class}}</td><td class="t">{{.Route}}</td></tr>
{{end}}</table></div>{{if .More}}<p>{{.More}} more are not shown.</p>{{end}}
{{else}}<p>None: everything goes as the tables say.</p>{{end}}
</body></html>
`))
