package receipts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// tellAccount prints what a receipt says of the outside: what could be reached,
// what was, what was lent, asked of persons, and seen inside.
func tellAccount(b *audit.Body, out io.Writer) error {
	var rows [][]string
	add := func(what, stage, text string, more ...string) {
		rows = append(rows, []string{what, stage, text, strings.Join(slices.DeleteFunc(more, func(s string) bool { return s == "" }), ", ")})
	}
	// A stage that ran in several attempts had the same rules mostly.
	said := map[string]bool{}
	for _, g := range b.Grants {
		for _, r := range rulesOf(g.Rules) {
			if key := fmt.Sprint(g.Stage, r); !said[key] {
				said[key] = true
				add("reachable", string(g.Stage), place(r.Host, r.Ports), strings.Join(r.Methods, " "), strings.Join(r.Paths, " "), named("credential", r.Credential), named("until", r.Until), named("by", r.ID))
			}
		}
	}
	for _, r := range b.Reached {
		add("reached", string(r.Stage), place(r.Host, []uint16{r.Port}), fmt.Sprintf("%d connections", r.Connections), counted(r.Requests, "requests"),
			fmt.Sprintf("%d bytes in, %d out", r.BytesIn, r.BytesOut))
	}
	for _, l := range b.Lent {
		uses := fmt.Sprintf("%d uses", l.Uses)
		if !l.Given {
			uses = "never given"
		}
		add("lent", string(l.Stage), fmt.Sprintf("%s (%s)", l.Credential, cmp.Or(l.Kind, "header")), "at "+place(strings.Join(l.Hosts, " "), l.Ports),
			settings(l.Settings), strings.Join(l.Methods, " "), strings.Join(l.Paths, " "), span(l.From, l.Until, l.Why), uses)
	}
	for _, a := range b.Approvals {
		answer := string(a.State)
		if a.By != "" {
			answer += " by " + a.By
		}
		add("asked", string(a.Stage), string(a.Kind), "at "+moment(a.AskedAt), answer, named("scope", string(a.Scope)))
	}
	for _, h := range b.HandedOver {
		add("handed over", string(h.Stage), "identity for "+h.Audience, counted(h.Tokens, "tokens"), span(h.From, &h.Until, ""))
	}
	if b.Used != nil {
		for _, m := range b.Used.Models {
			cost := "no price"
			if m.Priced {
				cost = fmt.Sprintf("%.6f USD", float64(m.MicroUSD)/1e6)
			}
			add("model", "", cmp.Or(m.Model, "(not named)"), counted(m.Requests, "requests"), fmt.Sprintf("%d tokens", m.Sum()), counted(m.Estimates, "estimated"), cost)
		}
	}
	if b.Lent == nil {
		add("lent", "", "not counted", "the receipt is of before it was")
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(out, "nothing could be reached, nothing was lent, asked or handed over")
		return err
	}
	return show.Table(out, []string{"WHAT", "STAGE", "WHICH", "MORE"}, rows)
}

// rule is what is told of a rule.
type rule struct {
	ID, Host, Credential string
	Until                string
	Ports                []uint16
	Methods, Paths       []string
}

func rulesOf(raw json.RawMessage) []rule {
	var rules []rule
	_ = json.Unmarshal(raw, &rules) // what can't be read is in the receipt all the same
	return rules
}

func place(host string, ports []uint16) string {
	return strings.TrimSpace(host + " " + strings.Trim(strings.ReplaceAll(fmt.Sprint(ports), " ", ","), "[]"))
}

func named(what, text string) string {
	if text == "" {
		return ""
	}
	return what + " " + text
}

func counted(n int64, of string) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d %s", n, of)
}

func settings(all map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+"="+all[name])
	}
	return strings.Join(list, " ")
}

func moment(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func span(from time.Time, until *time.Time, why string) string {
	if until == nil {
		return "from " + moment(from) + ", not ended"
	}
	if why != "" {
		why = " (" + why + ")"
	}
	return "from " + moment(from) + " to " + moment(*until) + why
}
