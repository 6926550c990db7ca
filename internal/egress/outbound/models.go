package outbound

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/cofferdam/cofferdam/internal/egress/meter"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Purse says whether what asks a model may go: whether a budget has room for it.
type Purse interface {
	// Take waits until there is room, and returns what is to be called once what
	// the request used is on record. Errors are *task.Failure: task.LimitSpend when
	// there is none, task.InfraControlAway when nobody could say. counted says that
	// the answer will tell what the request used.
	Take(ctx context.Context, sandbox string, counted bool) (done func(), err error)
}

// modelUse is how a request asks a model. The zero value asks none.
type modelUse struct {
	asks  bool
	kind  meter.Kind
	meter *meter.Meter
}

// asksModel tells requests that models' vendors charge for: those that go under
// the rule for the agent's models, and those to which a key is lent where they
// look like questions to a model or go to a vendor.
func (g *Gate) asksModel(r *http.Request, p Pass) modelUse {
	if !p.Allowed() {
		return modelUse{}
	}
	kind := meter.KindOf(r.Method, SentPath(r.URL), r.Header)
	if kind == meter.Free || p.Decision.Rule != task.RuleModel && (p.lease == nil || !kind.Counted() && !vendor(g.Use.Name)) {
		return modelUse{}
	}
	return modelUse{asks: true, kind: kind, meter: meter.New(kind, SentPath(r.URL))}
}

// vendor says whether a name is that of a vendor of models.
func vendor(name string) bool {
	return slices.ContainsFunc(task.Providers(), func(p task.Provider) bool {
		u, err := url.Parse(p.URL)
		return err == nil && name != "" && u.Hostname() == name
	})
}

// Meter counts what the request uses of a model; nil, whose methods do nothing,
// when it asks none.
func (p Pass) Meter() *meter.Meter { return p.model.meter }

// Afford waits until a budget has room for what the request asks of a model, and
// returns what is to be called once its end is on record. An error means that it
// must not go.
func (g *Gate) Afford(ctx context.Context, purse Purse, p Pass) (done func(), err error) {
	if purse == nil || !p.model.asks {
		return func() {}, nil
	}
	return purse.Take(ctx, g.Grant.Sandbox, p.model.kind.Counted())
}
