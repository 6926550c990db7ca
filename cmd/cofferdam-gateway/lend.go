package main

import (
	"errors"
	"log/slog"

	"github.com/cofferdam/cofferdam/internal/egress"
	"github.com/cofferdam/cofferdam/internal/egress/asker"
	"github.com/cofferdam/cofferdam/internal/egress/lender"
	"github.com/cofferdam/cofferdam/internal/egress/plane"
	"github.com/cofferdam/cofferdam/internal/egress/spender"
)

// lend connects the gateway's options to the control plane that lends values
// asks persons and knows budgets. Without one nothing is lent, and requests that need a
// credential are refused; nobody is asked, and what would be is denied; no budget is.
// The caller calls end after the gateway was closed.
func lend(o *egress.Options, control, tokenFile string, log *slog.Logger) (end func(), err error) {
	if control == "" && tokenFile == "" {
		log.Warn("no --control: no credential is lent to the sandboxes of this machine")
		return func() {}, nil
	}
	if control == "" || tokenFile == "" {
		return nil, errors.New("--control and --control-token-file go together")
	}
	l, err := lender.New(lender.Options{Control: control, TokenFile: tokenFile, Log: log})
	if err != nil {
		return nil, err
	}
	a, err := asker.New(plane.Options{Control: control, TokenFile: tokenFile, Log: log})
	if err != nil {
		l.Close()
		return nil, err
	}
	s, err := spender.New(plane.Options{Control: control, TokenFile: tokenFile, Log: log})
	if err != nil {
		l.Close()
		a.Close()
		return nil, err
	}
	o.Lender, o.Granted, o.Asker, o.Purse = l, l.Granted, a, s
	return func() { l.Close(); a.Close(); s.Close() }, nil
}
