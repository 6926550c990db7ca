package loop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// errSilent ends a request whose far side sent nothing for too long.
var errSilent = errors.New("nothing came for too long")

// errLarge ends an answer that is larger than any model's.
var errLarge = errors.New("the answer is larger than 64 MiB")

const maxAnswer = 64 << 20

// guard ends requests that fall silent and bounds answers. What comes is the far
// side's choice.
type guard struct {
	next    http.RoundTripper
	silence time.Duration
}

// RoundTrip sends the request.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(g.silence, func() { cancel(errSilent) })
	resp, err := g.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		timer.Stop()
		err = because(ctx, err)
		cancel(nil)
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode >= 300 && resp.StatusCode < 400 {
		// A key goes to the server it was asked for, and nowhere else.
		timer.Stop()
		cancel(nil)
		_ = resp.Body.Close() // nothing of it is wanted
		return nil, &Trouble{Kind: Faulty, Text: fmt.Sprintf("HTTP %d, which no model's server answers", resp.StatusCode)}
	}
	timer.Reset(g.silence)
	resp.Body = &guardedBody{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, timer: timer, silence: g.silence, left: maxAnswer}
	return resp, nil
}

// because is err, or why the request was ended.
func because(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}

type guardedBody struct {
	io.ReadCloser
	ctx     context.Context //nolint:containedctx // a body outlives the call that made it
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	silence time.Duration
	left    int64
}

// Read passes on what comes.
func (b *guardedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.timer.Reset(b.silence)
	if b.left -= int64(n); b.left < 0 {
		return n, errLarge
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = because(b.ctx, err)
	}
	return n, err
}

// Close ends the request.
func (b *guardedBody) Close() error {
	b.timer.Stop()
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
