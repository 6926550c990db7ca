package attack

import (
	"fmt"
	"html/template"
	"io"

	"github.com/cofferdam/cofferdam/internal/attack"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// List prints what fell and what was not tried, each with what happened, and
// otherwise only counts.
func List(out io.Writer, r attack.Report) error {
	rows := [][]string{}
	for _, c := range r.Checks {
		if c.Outcome != attack.Held {
			rows = append(rows, []string{c.Outcome, c.ID, c.Tried, c.Happened})
		}
	}
	if len(rows) > 0 {
		if err := show.Table(out, []string{"OUTCOME", "CHECK", "WHAT WAS TRIED", "WHAT HAPPENED"}, rows); err != nil {
			return err
		}
	}
	held, families := map[string][2]int{}, []string{}
	for _, c := range r.Checks {
		f := attack.Family(c.ID)
		n, ok := held[f]
		if !ok {
			families = append(families, f)
		}
		if n[1]++; c.Outcome == attack.Held {
			n[0]++
		}
		held[f] = n
	}
	for _, f := range families {
		if _, err := fmt.Fprintf(out, "%-10s %3d of %3d held\n", f, held[f][0], held[f][1]); err != nil {
			return err
		}
	}
	if r.Cut {
		if _, err := fmt.Fprintln(out, "The time was used up before all were tried (--within): what was not says so above, and proves nothing."); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%d checks in %.0f s: %d held, %d fell, %d untried\n", len(r.Checks), r.Seconds, r.Held, r.Fell, r.Untried)
	return err
}

const page = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Attack report</title>
<style>body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#1a1a1a;background:#fff}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid #ddd;overflow-wrap:anywhere}
.held{color:#116329}.fell{color:#a40e26;font-weight:700}.untried{color:#7d4e00;font-weight:700}code{white-space:nowrap}</style></head><body>
<h1>Attack report</h1>
<p class="{{if .Fell}}fell{{else if .Untried}}untried{{else}}held{{end}}">{{len .Checks}} checks in {{printf "%.0f" .Seconds}} s: {{.Held}} held, {{.Fell}} fell, {{.Untried}} untried.</p>
{{if .Cut}}<p class="untried">The time was used up before all were tried: what was not is untried, and proves nothing.</p>
{{end}}<p>Held: tried, and got nowhere. Fell: got somewhere. Untried: could not be tried, and proves nothing.</p>
<table><thead><tr><th>outcome</th><th>check</th><th>what was tried</th><th>what happened</th></tr></thead><tbody>
{{range .Checks}}<tr><td class="{{.Outcome}}">{{.Outcome}}</td><td><code>{{.ID}}</code></td><td>{{.Tried}}</td><td>{{.Happened}}</td></tr>
{{end}}</tbody></table></body></html>
`

// Page writes the report as one HTML file that needs nothing else.
func Page(out io.Writer, r attack.Report) error {
	t, err := template.New("page").Parse(page)
	if err != nil {
		return err
	}
	return t.Execute(out, r)
}
