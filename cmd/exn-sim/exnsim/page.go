package exnsim

import (
	"html/template"
	"io"

	"exnet/internal/display"
	"exnet/internal/svgplot"
)

// pageText is the page that compares the runs.
var pageText = template.Must(template.New("page").Funcs(template.FuncMap{"bytes": display.Bytes, "mean": func(v float64) string { return display.Bytes(uint64(v)) }}).Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>exn-sim: {{.Scenario}}</title>
<style>
:root{color-scheme:light dark;--bg:#fff;--fg:#222;--rule:#ddd;--link:#0645ad}
@media(prefers-color-scheme:dark){:root{--bg:#16181c;--fg:#ddd;--rule:#444;--link:#8ab4f8;--plot-fg:#ddd;--plot-grid:#333;--plot-ref:#aaa;--plot-0:#56b4e9}}
@media print{:root{color-scheme:light;--bg:#fff;--fg:#000;--rule:#bbb;--link:#000;--plot-fg:#000;--plot-grid:#ddd;--plot-ref:#555;--plot-0:#0072b2}figure,tr{break-inside:avoid}h2{break-after:avoid}}
body{font:15px/1.45 sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:var(--fg);background:var(--bg)}a{color:var(--link)}
.wide{overflow-x:auto}img{background:#fff}
table{border-collapse:collapse;font-size:13px}td,th{padding:3px 9px;border-bottom:1px solid var(--rule);text-align:right}
td.t,th.t{text-align:left}figure{margin:1em 0;overflow-x:auto}img{max-width:100%}svg.plot{max-width:620px;width:100%;height:auto}td{white-space:nowrap}td.t{white-space:normal}@media(max-width:560px){img{max-width:none}table{font-size:11px}td,th{padding:3px 4px}}h2{margin-top:1.6em}
</style></head><body>
<h1>{{.Scenario}}</h1>
<p>Runs: {{len .Runs}}. Each job loads a link with all the bytes that it sends over it, for as long as the job runs.
A link's load here is the largest sum of the jobs that ran at the same time. All drawings have one scale:
the same colour and width is the same load.{{with .Fault}} {{.}}{{end}}</p>
{{if gt (len .Runs) 1}}<figure>{{.Chart}}</figure>{{end}}
<div class="wide"><table><tr><th>run</th><th class="t">what</th><th>largest load</th><th>relative to run 1</th><th>mean</th><th>deviation</th><th>most flows</th><th class="t">busiest link</th><th>makespan</th><th>mean wait</th></tr>
{{range .Runs}}<tr><td><a href="#run-{{.Number}}">{{.Number}}</a></td><td class="t">{{.Label}}</td><td>{{bytes .Stats.Max}}</td><td>{{printf "%.4f" .Relative}}</td><td>{{mean .Stats.Mean}}</td><td>{{mean .Stats.StdDev}}</td><td>{{.Stats.MaxFlows}}</td><td class="t">{{.Busiest}}</td><td>{{.Makespan}} s</td><td>{{printf "%.3g" .Wait}} s</td></tr>
{{end}}</table></div>
{{range .Runs}}<h2 id="run-{{.Number}}">{{.Number}}: {{.Label}}</h2>
<p>{{.Network}}, router {{.Router}}: {{.Flows}} flows, {{bytes .Bytes}} between hosts; {{.Stats.Used}} of {{.Stats.Channels}} channels are used.
<a href="{{.Dir}}/links.csv">links</a>, <a href="{{.Dir}}/jobs.csv">jobs</a>, <a href="{{.Dir}}/network.graphml">GraphML</a></p>
{{if .Drawn}}<figure><img src="{{.Dir}}/load.svg" alt="The load of each link" loading="lazy"></figure>{{else}}<p>The network is too large to draw.</p>{{end}}
{{end}}</body></html>
`))

// pageRun is a run as the page shows it.
type pageRun struct {
	outcome
	Label, Dir string
	Drawn      bool
	Relative   float64
}

func writePage(w io.Writer, scenario string, all []outcome) error {
	bars := svgplot.Bars{Title: "Largest load of a link", Desc: "One bar for each run", X: svgplot.Axis{Label: "Largest load, relative to run 1"}}
	data := struct {
		Scenario, Fault string
		Runs            []pageRun
		Chart           template.HTML
	}{Scenario: scenario}
	for i, o := range all {
		r := relativeLoad(all, o)
		data.Runs = append(data.Runs, pageRun{o, o.label, o.dir, o.drawn, r})
		if i < maxBars {
			bars.Bars = append(bars.Bars, svgplot.Bar{Name: o.label, Value: r})
		}
		if !o.Idle {
			data.Fault = "After all jobs some load is not 0: this is a fault of exn-sim."
		}
	}
	data.Chart = template.HTML(bars.SVG()) // svgplot escapes what it is given
	return pageText.Execute(w, data)
}

// maxBars is how many runs the chart shows.
const maxBars = 64
