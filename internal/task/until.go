package task

import (
	"slices"
	"time"
)

// Over says whether the rule has ended by the given moment. One that may end has,
// where the moment is not known or its end was not fixed.
func (r Rule) Over(at time.Time) bool {
	return r.For != 0 || r.Until != nil && (at.IsZero() || !at.Before(*r.Until))
}

// Ending is the rule's end as a policy says it; empty: it has none of its own.
func (r Rule) Ending() string {
	switch {
	case r.Until != nil:
		return r.Until.UTC().Format(time.RFC3339)
	case r.For != 0:
		return r.For.String() + " after the stage began"
	}
	return ""
}

// From is the grant of a stage that began at the given moment: rules that last for
// a time end then. Where the moment is not known they lasted for none.
func (g Grant) From(began *time.Time) Grant {
	g.Rules = slices.Clone(g.Rules)
	for i := range g.Rules {
		r := &g.Rules[i]
		if r.For == 0 || began == nil {
			continue
		}
		if until := began.Add(r.For).Truncate(time.Microsecond).UTC(); r.Until == nil || until.Before(*r.Until) {
			r.Until = &until
		}
		r.For = 0
	}
	return g
}

// Over says whether the lease has ended by itself by the given moment.
func (l Lease) Over(at time.Time) bool { return l.Ends != nil && !at.Before(*l.Ends) }

// EndsWith is when a credential's lease ends by itself: with the last of the rules
// that name it; nil: one of them has no end.
func EndsWith(credential string, rules []Rule) *time.Time {
	var last *time.Time
	for _, r := range rules {
		switch {
		case r.Credential != credential:
		case r.Until == nil:
			return nil
		case last == nil || r.Until.After(*last):
			last = r.Until
		}
	}
	return last
}

// NextEnd is when the first of the rules ends after the given moment; nil: none
// does.
func NextEnd(rules []Rule, after time.Time) *time.Time {
	var next *time.Time
	for _, r := range rules {
		if r.Until != nil && r.Until.After(after) && (next == nil || r.Until.Before(*next)) {
			next = r.Until
		}
	}
	return next
}

// EndedAt are the rules that ended at the given moment, as they were while they
// lasted.
func EndedAt(rules []Rule, at time.Time) []Rule {
	var ended []Rule
	for _, r := range rules {
		if r.Until != nil && r.Until.Equal(at) {
			r.Until = nil
			ended = append(ended, r)
		}
	}
	return ended
}

// Lasting is the grant without the leases that have ended by the given moment.
func (g Grant) Lasting(at time.Time) Grant {
	g.Leases = slices.DeleteFunc(slices.Clone(g.Leases), func(l Lease) bool { return l.Over(at) })
	return g
}

// Endless is the grant as it is while all of its rules last.
func (g Grant) Endless() Grant {
	g.Rules = slices.Clone(g.Rules)
	for i := range g.Rules {
		g.Rules[i].Until, g.Rules[i].For = nil, 0
	}
	return g
}
