// Package traffic counts what the decision log of one sandbox says of it: which
// hosts were reached, and how often each lease was used. It is what a receipt
// says of them.
//
// Words. A host is reached by a connection that was allowed and came about, and
// by the requests on it that were allowed. A use of a lease is one request, or one
// login to a database, that its value was put into. What the gateway answers
// itself is neither, but for tokens of the run's own identity.
//
// Not promised: that a connection whose end nobody recorded, since the gateway
// was killed, came about; it is counted.
package traffic

import (
	"cmp"
	"maps"
	"slices"

	"github.com/cofferdam/cofferdam/internal/task"
)

// MostReached is how many hosts are listed one by one, a sandbox.
const MostReached = 256

// Reached is what went to one port of one host, from one stage.
type Reached struct {
	Stage       task.StageName `json:"stage,omitempty"`
	Host        string         `json:"host"` // the name asked for, else the literal address
	Port        uint16         `json:"port"`
	Connections int64          `json:"connections"`
	Requests    int64          `json:"requests"` // that were decided one by one
	BytesIn     int64          `json:"bytesIn"`
	BytesOut    int64          `json:"bytesOut"`
}

// Sum is what was counted.
type Sum struct {
	Reached []Reached        `json:"reached,omitempty"` // by stage, host and port
	More    int              `json:"more,omitempty"`    // hosts beyond MostReached, which are not listed
	Uses    map[string]int64 `json:"uses,omitempty"`    // by lease
}

type place struct {
	stage task.StageName
	host  string
	port  uint16
}

type one struct{ conn, request int64 }

// Tally counts. Its zero value has counted nothing; it is not safe for
// concurrent use.
type Tally struct {
	places map[place]*Reached
	open   map[int64]struct{} // connections that are counted already
	uses   map[string]int64
	lent   map[one]struct{} // whose end is to come
}

// Add counts one record. Records come in the order in which they were made.
func (t *Tally) Add(r task.EgressRecord) {
	if t.places == nil {
		t.places, t.open, t.uses, t.lent = map[place]*Reached{}, map[int64]struct{}{}, map[string]int64{}, map[one]struct{}{}
	}
	if r.Count == 0 && (!task.IsReserved(r.Name) || r.Name == task.TokenHost) {
		t.use(r)
	}
	if task.IsReserved(r.Name) || r.Done && r.Request > 0 || !r.Done && r.Verdict != task.Allowed.String() {
		return
	}
	p := place{r.Stage, cmp.Or(r.Name, r.Address), r.Port}
	at := t.places[p]
	if at == nil {
		if r.Done {
			return // of a connection that was refused
		}
		at = &Reached{Stage: p.stage, Host: p.host, Port: p.port}
		t.places[p] = at
	}
	_, known := t.open[r.Conn]
	switch {
	case r.Request > 0:
		at.Requests++
	case !r.Done && !known: // a record for each address that is tried
		t.open[r.Conn] = struct{}{}
		at.Connections++
	case r.Done:
		at.BytesIn, at.BytesOut = at.BytesIn+r.BytesIn, at.BytesOut+r.BytesOut
		if known && failed(r) {
			at.Connections--
		}
		delete(t.open, r.Conn)
	}
}

// failed says whether a connection ended before there was one.
func failed(r task.EgressRecord) bool {
	return r.BytesIn+r.BytesOut == 0 && r.Reason != task.ReasonNone
}

// use counts what was lent.
func (t *Tally) use(r task.EgressRecord) {
	key := one{r.Conn, r.Request}
	switch _, lent := t.lent[key]; {
	case r.Lease == "":
	case !r.Done && !lent && r.Verdict == task.Allowed.String():
		t.lent[key] = struct{}{}
		t.uses[r.Lease]++
	case r.Done && lent:
		delete(t.lent, key)
		if r.Reason != task.ReasonNone && r.Status == 0 && (r.Request > 0 || failed(r)) {
			t.uses[r.Lease]-- // it was not lent after all, or never sent
		}
	}
}

// Sum gives what was counted so far.
func (t *Tally) Sum() Sum {
	var s Sum
	for _, at := range t.places {
		if at.Connections > 0 || at.Requests > 0 {
			s.Reached = append(s.Reached, *at)
		}
	}
	slices.SortFunc(s.Reached, func(a, b Reached) int {
		return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port))
	})
	if more := len(s.Reached) - MostReached; more > 0 {
		s.Reached, s.More = s.Reached[:MostReached], more
	}
	if uses := maps.Clone(t.uses); len(uses) > 0 {
		maps.DeleteFunc(uses, func(_ string, n int64) bool { return n == 0 })
		if len(uses) > 0 {
			s.Uses = uses
		}
	}
	return s
}
