package fleet

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

var _ stage.FilePermission = (*Fleet)(nil)

// Protect implements stage.FilePermission.
func (f *Fleet) Protect(ctx context.Context, id string, rules task.FileRules) (task.FileProtection, error) {
	var done task.FileProtection
	err := f.at(ctx, id, func(ctx context.Context, c *conn) error {
		done = task.FileProtection{}
		return c.exchange(ctx, http.MethodPut, sandboxPath(id)+"/protect", rules, &done)
	})
	if err != nil {
		return task.FileProtection{}, f.lostSandbox(id, err)
	}
	// What was protected follows from the rules; the worker only adds what it met.
	done.Rules, done.Widened = rules.Effective(), rules.Widened()
	return done, nil
}

// maxDenials bounds the refusals that one call returns.
const maxDenials = 50_000

// Denials implements stage.FilePermission.
func (f *Fleet) Denials(ctx context.Context, id string, after int64) ([]task.FileDenial, error) {
	var list []task.FileDenial
	for len(list) < maxDenials {
		var page link.DenialList
		err := f.at(ctx, id, func(ctx context.Context, c *conn) error {
			page = link.DenialList{}
			path := sandboxPath(id) + "/denials?after=" + strconv.FormatInt(after, 10)
			if err := c.exchange(ctx, http.MethodGet, path, nil, &page); err != nil {
				return err
			}
			return checkDenials(c.worker, id, after, page.Denials)
		})
		if err != nil {
			return nil, err
		}
		if len(page.Denials) == 0 {
			break
		}
		list = append(list, page.Denials...)
		after = list[len(list)-1].Seq
	}
	return list, nil
}

func checkDenials(worker, id string, after int64, list []task.FileDenial) error {
	if len(list) > link.MaxDenials {
		return protocol(worker, fmt.Errorf("%d refused writes at once", len(list)))
	}
	for _, d := range list {
		if d.Sandbox != id || d.Seq <= after || d.Count < 0 {
			return protocol(worker, fmt.Errorf("refused write %d of %q where %s after %d was asked for", d.Seq, d.Sandbox, id, after))
		}
		for _, text := range []string{d.Operation, d.Path, d.Error, d.Program} {
			if len(text) > 8<<10 || !utf8.ValidString(text) {
				return protocol(worker, fmt.Errorf("refused write %d has a text that is too long or not UTF-8", d.Seq))
			}
		}
		after = d.Seq
	}
	return nil
}
