package decide

import (
	"iter"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/policy/match"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Index answers as Decide and DecideRequest do, for a grant that is asked
// often: what a decision costs follows from the rules for its host, not from
// the length of the grant. The zero Index denies everything. It is not changed
// after it is made and may be used by many at once.
type Index struct {
	rules  []held
	exact  map[string][]int // by canonical host
	single map[string][]int // by x of "*.x"
	deep   map[string][]int // by x of "**.x"
	ids    map[string]int   // the first of each
}

// NewIndex makes the index of a grant's rules, which the caller no longer
// changes.
func NewIndex(grant task.Grant) *Index {
	x := &Index{rules: make([]held, len(grant.Rules)), exact: map[string][]int{}, single: map[string][]int{}, deep: map[string][]int{}, ids: map[string]int{}}
	for i := range grant.Rules {
		x.rules[i].Rule = &grant.Rules[i]
		if _, had := x.ids[grant.Rules[i].ID]; !had {
			x.ids[grant.Rules[i].ID] = i
		}
		if len(grant.Rules[i].Query)+len(grant.Rules[i].Headers) > 0 {
			fields := match.Compile(grant.Rules[i].Query, grant.Rules[i].Headers)
			x.rules[i].fields = &fields
		}
		host := match.RuleHost(x.rules[i].Host)
		if !match.IsPattern(host) {
			x.exact[host] = append(x.exact[host], i)
			continue
		}
		switch base, deep, ok := match.CutPattern(host); {
		case ok && deep:
			x.deep[base] = append(x.deep[base], i)
		case ok:
			x.single[base] = append(x.single[base], i)
		}
	}
	return x
}

// Rule is the rule of an id, as a decision names it; the zero rule when there is
// none.
func (x *Index) Rule(id string) task.Rule {
	if i, ok := x.ids[id]; ok {
		return *x.rules[i].Rule
	}
	return task.Rule{}
}

// Decide answers as the function Decide does.
func (x *Index) Decide(use Use) task.Decision { return decide(x.candidates(use)) }

// DecideRequest answers as the function DecideRequest does.
func (x *Index) DecideRequest(use Use, q Request) task.Decision {
	return decideRequest(x.candidates(use), q)
}

func (x *Index) candidates(use Use) iter.Seq[held] {
	return func(yield func(held) bool) {
		text, ok := use.host()
		if !ok || use.Port == 0 {
			return
		}
		for _, i := range x.found(match.NewHost(text)) {
			if slices.Contains(x.rules[i].Ports, use.Port) && !x.rules[i].Over(use.At) && !yield(x.rules[i]) {
				return
			}
		}
	}
}

// found are the numbers of the rules that stand for the host, in the order of
// the file.
func (x *Index) found(h match.Host) []int {
	found := x.exact[h.Text]
	if !h.Named {
		return found
	}
	first := true
	for rest := h.Text; ; first = false {
		_, base, more := strings.Cut(rest, ".")
		if !more {
			break
		}
		if first {
			found = slices.Concat(found, x.single[base])
		}
		if more := x.deep[base]; len(more) > 0 {
			found = slices.Concat(found, more)
		}
		rest = base
	}
	if len(found) > len(x.exact[h.Text]) { // else it is the index's own, which is in order
		slices.Sort(found)
	}
	return found
}
