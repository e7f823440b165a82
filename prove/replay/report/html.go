package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
)

//go:embed page.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template shows. Pictures are made here, with every name
// escaped, and pass as they are.
type page struct {
	Title, How, Pareto string
	Subject            string
	LossText           string
	ShortLossText      string
	LeadText, LeadHow  string
	Notes              []string
	Legend             []legend
	Bands              []string
	Short              table
	Losses             table
	ShortLosses        table
	Leads              table
	ParetoTable        table
	Curves, MoreCurves []template.HTML
	CDFs               []cdfs
	Timelines          []timelines
	Everything         []everything
	About, Metrics     table
	Command            string
}

type legend struct {
	Name string
	Mark template.HTML
}

// cdfs are the pictures of one latency, one for each load.
type cdfs struct {
	Title, Means string
	Open         bool
	Pictures     []template.HTML
}

type timelines struct {
	Load     string
	Open     bool
	Pictures []template.HTML
}

type everything struct {
	Load  string
	Table table
}

// curves are the metrics whose load curves are shown first; those of other
// latencies can be opened.
var curves = append([]string{"answer_itl_p99"}, Short...)

// WriteHTML writes report.html: one file without scripts, which needs nothing
// from anywhere.
func (r *Report) WriteHTML(w io.Writer) error {
	p := page{
		Title: r.title(), How: howToRead, Pareto: paretoText, Subject: r.Subject, LossText: r.lossText(), Notes: r.notes(), Bands: r.bandsSeen(),
		Short: r.shortTable(), Losses: r.lossTable(r.peers()), ShortLossText: r.shortLossText(), ShortLosses: r.lossTable(r.shorteners()),
		LeadText: r.leadText(), LeadHow: leadHow, Leads: r.leadTable(), ParetoTable: r.paretoTable(), About: r.aboutTable(), Metrics: r.metricTable(), Command: r.Command,
	}
	for _, policy := range r.drawn() {
		style := r.style(policy)
		p.Legend = append(p.Legend, legend{r.labelled(policy), template.HTML(fmt.Sprintf(
			`<svg viewBox="0 0 44 14"><path class="line s%d" d="M2,7L42,7"/><path class="mark s%d" d="%s"/></svg>`, style, style, mark(style, 22, 7)))})
	}
	for _, m := range r.Metrics {
		picture := template.HTML(r.loadCurve(m))
		switch {
		case picture == "":
		case slices.Contains(curves, m.Name):
			p.Curves = append(p.Curves, picture)
		default:
			p.MoreCurves = append(p.MoreCurves, picture)
		}
	}
	r.pictures(&p)
	return pageTemplate.Execute(w, p)
}

// pictures adds distributions and timelines.
func (r *Report) pictures(p *page) {
	for _, l := range Latencies {
		c := cdfs{Title: l.Title, Means: l.Means, Open: l.Name == "ttfvt"}
		for _, load := range r.Loads {
			if picture := r.cdf(l, load); picture != "" {
				c.Pictures = append(c.Pictures, template.HTML(picture))
			}
		}
		if len(c.Pictures) > 0 {
			p.CDFs = append(p.CDFs, c)
		}
	}
	for i, load := range r.Loads {
		points := r.at(load)
		t := timelines{Load: loadText(load), Open: i == len(r.Loads)-1}
		most := mostRequests(points)
		for _, policy := range r.drawn() {
			requests, kv := r.Point(policy, load).timelines(most)
			if requests != "" {
				t.Pictures = append(t.Pictures, template.HTML(requests), template.HTML(kv))
			}
		}
		if len(t.Pictures) > 0 {
			p.Timelines = append(p.Timelines, t)
		}
		p.Everything = append(p.Everything, everything{loadText(load), r.deltaTable(load)})
	}
}

// bandsSeen are the bands that any timeline has, in the order of the legend.
func (r *Report) bandsSeen() []string {
	seen := make(map[string]bool)
	for _, p := range r.Points {
		if p.Timeline == nil {
			continue
		}
		for _, s := range slices.Concat(p.Timeline.Requests, p.Timeline.KV) {
			seen[bandClass(s.Name)] = true
		}
	}
	var names []string
	for _, name := range append(slices.Clone(bands), "other") {
		if seen[name] {
			names = append(names, name)
		}
	}
	return names
}

// Class is how the page colours a cell.
func (c cell) Class() string { return strings.ToLower(string(c.Verdict)) }
