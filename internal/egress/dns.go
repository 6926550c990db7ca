package egress

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/egress/nameserver"
	"github.com/cofferdam/cofferdam/internal/egress/netstack"
	"github.com/cofferdam/cofferdam/internal/task"
)

// nameServer is the sandbox's.
func (w *way) nameServer() *nameserver.Server {
	return &nameserver.Server{
		Table: w.names, Take: w.queries.take, Log: w.log,
		Stored: func(ctx context.Context, entry names.Entry) error { return w.gateway.options.Stored(ctx, w.id, entry) },
		Full: func() {
			rec := w.base()
			rec.Protocol, rec.Port, rec.Address = "dns", 53, netstack.Gateway4().String()
			rec.Verdict, rec.Reason = task.Denied.String(), task.LimitNames
			w.records.Tally(rec)
		},
	}
}

// serveNamesTCP answers queries that come over a connection.
func (w *way) serveNamesTCP(r *netstack.Request) {
	c := &connection{way: w, to: r.To(), ctx: w.ctx, cancel: func() {}}
	w.mu.Lock()
	full := w.closed || len(w.conns) >= w.most
	if !full {
		w.conns[c] = struct{}{}
	}
	w.mu.Unlock()
	if full {
		r.Refuse()
		return
	}
	defer w.end(c)
	defer c.finish()
	inner, err := r.Accept(false)
	if err != nil || !c.hold(inner) {
		return
	}
	defer inner.Close()
	w.nameServer().Stream(w.ctx, inner)
}
