// Package provider asks those who mint credentials over HTTP, for the adapters
// beside it.
//
// Words. A provider is a forge, an authorization server or a cloud. A question is
// one request to it; its answer is one that can be judged: a provider that is
// away, limits us or fails is asked again a few times within the question's time,
// and then the failure says when to come back. A refusal is an answer of class
// 4xx: task.PolicyCredential, with what the provider said, cut short and without
// any secret of the question. Everything else that is not the answer it should
// be is task.InfraCredential.
//
// How long a value lasts is judged by the provider's own clock, as its Date field
// tells it, and counted on ours from before the question: clocks may be apart.
//
// Not promised: that a question which got no answer had no effect.
package provider

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The bounds of a question.
const (
	maxBody    = 256 << 10
	maxTold    = 200             // of what a provider says
	tries      = 3               // of one question
	tryTime    = 5 * time.Second // one of them
	firstPause = 300 * time.Millisecond
	patience   = 4 * time.Second // the longest pause that is waited for within a question
	maxLater   = time.Hour
)

// Provider asks. Via and Now are required.
type Provider struct {
	Via http.RoundTripper // over verified TLS to addresses that were checked; follows no redirect
	Now func() time.Time
	// Pause waits between two tries; nil: a timer.
	Pause func(ctx context.Context, d time.Duration) error
}

// Question is one request.
type Question struct {
	Credential string // its name, for texts
	Method     string
	URL        string
	Header     http.Header
	Body       string
	Secrets    []task.Secret // what the question holds and no text may
	// Limited says whether an answer that looks like a refusal only says that we
	// ask too often; nil: none does. Later is for how long, zero: not said.
	Limited func(a Answer) (limited bool, later time.Duration)
	// Patience is how long one try may take; zero: five seconds. An answer that
	// comes later is lost.
	Patience time.Duration
}

// Answer is what a provider said.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Asked  time.Time // by our clock, before the question that was answered
	of     Question
	host   string
}

// Ask asks and gives an answer of class 2xx or 4xx. Errors are *task.Failure.
func (p Provider) Ask(ctx context.Context, q Question) (Answer, error) {
	u, err := url.Parse(q.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return Answer{}, task.Fail(task.PolicyCredential, fmt.Sprintf("credential %q: its provider's address is no plain https URL; add the credential anew", q.Credential), nil)
	}
	a := Answer{of: q, host: u.Host}
	pause := firstPause
	for try := 1; ; try++ {
		err := p.once(ctx, &a)
		if err == nil {
			return a, nil
		}
		later, again := wait(err, pause)
		if !again || try == tries || later > patience || ctx.Err() != nil || p.sleep(ctx, later) != nil {
			return Answer{}, err
		}
		pause *= 3
	}
}

// wait says for how long to wait before a question is asked again, if at all.
func wait(err error, pause time.Duration) (time.Duration, bool) {
	if later, ok := errors.AsType[*credential.Later](err); ok {
		return max(later.After, pause), true
	}
	_, final := errors.AsType[*finalError](err)
	f, ok := errors.AsType[*task.Failure](err)
	return pause, ok && !final && f.Reason == task.InfraCredential
}

// finalError is the cause of a failure that another try does not mend.
type finalError struct{ text string }

func (f *finalError) Error() string { return f.text }

func (p Provider) sleep(ctx context.Context, d time.Duration) error {
	if p.Pause != nil {
		return p.Pause(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// once asks once.
func (p Provider) once(ctx context.Context, a *Answer) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(a.of.Patience, tryTime))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, a.of.Method, a.of.URL, strings.NewReader(a.of.Body))
	if err != nil {
		return a.failed("can't be asked", &finalError{"not a request"})
	}
	if a.of.Header != nil {
		r.Header = a.of.Header.Clone()
	}
	r.Header.Set("User-Agent", "cofferdam")
	a.Asked = p.Now()
	res, err := p.Via.RoundTrip(r)
	if err != nil {
		return a.unreached(err)
	}
	defer res.Body.Close()
	a.Status, a.Header = res.StatusCode, res.Header
	a.Body, err = io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	if err != nil {
		return a.failed("broke off its answer", nil)
	}
	if len(a.Body) > maxBody {
		return a.failed("answered more than 256 KiB", &finalError{"too long"})
	}
	return a.judge()
}

// judge sorts an answer by its status.
func (a *Answer) judge() error {
	later := a.retryAfter()
	limited := a.Status == http.StatusTooManyRequests
	if !limited && a.of.Limited != nil {
		var told time.Duration
		if limited, told = a.of.Limited(*a); limited && told > 0 {
			later = told
		}
	}
	say := fmt.Sprintf("answered %d", a.Status)
	switch {
	case limited:
		return a.failed(say+": it is asked too often", &credential.Later{After: min(later, maxLater)})
	case a.Status >= 500 && later > 0:
		return a.failed(say, &credential.Later{After: min(later, maxLater)})
	case a.Status >= 500 || a.Status == http.StatusRequestTimeout:
		return a.failed(say, nil)
	case a.Status >= 200 && a.Status < 300, a.Status >= 400:
		return nil
	}
	return a.failed(say+", which is neither a value nor a refusal; see that the credential's settings name the right address", &finalError{"status"})
}

// unreached tells an error of the way to the provider. What the far side sent may
// stand in it, so only its kind is told.
func (a *Answer) unreached(err error) error {
	if f, ok := errors.AsType[*task.Failure](err); ok {
		switch {
		case f.Reason.Class() == "policy":
			return task.Fail(task.PolicyCredential, fmt.Sprintf("credential %q: %s may not be asked: %s", a.of.Credential, a.host, f.Text), nil)
		case f.Reason == task.EgressUntrusted:
			return a.failed("shows a certificate that is not valid for its name", &finalError{string(f.Reason)})
		case f.Reason == task.EgressUnresolved:
			return a.failed("has no address", nil)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return a.failed("did not answer in time", nil)
	}
	return a.failed("did not answer", nil)
}

func (a *Answer) failed(what string, cause error) error {
	return a.fail(task.InfraCredential, what, "", cause)
}

// retryAfter is what Retry-After says (RFC 9110 §10.2.3); zero: nothing.
func (a *Answer) retryAfter() time.Duration {
	text := a.Header.Get("Retry-After")
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return time.Duration(min(n, int(maxLater/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(a.clock()))
	}
	return 0
}

// clock is the provider's time when it answered; ours, when it tells none.
func (a *Answer) clock() time.Time {
	if at, err := http.ParseTime(a.Header.Get("Date")); err == nil {
		return at
	}
	return a.Asked
}

// Ahead is how far the provider's clock is ahead of ours; zero when it tells none.
func (a *Answer) Ahead() time.Duration { return a.clock().Sub(a.Asked) }

// OK says whether the answer grants what was asked.
func (a *Answer) OK() bool { return a.Status >= 200 && a.Status < 300 }

// Refused is the failure for an answer that refuses. why is what the provider
// said.
func (a *Answer) Refused(why string) error {
	return a.fail(task.PolicyCredential, fmt.Sprintf("refuses (%d)", a.Status), a.safe(why), nil)
}

// fail is a failure in words of ours, and what the provider said, which nobody
// inside is told.
func (a *Answer) fail(reason task.Reason, what, said string, cause error) error {
	f := task.Fail(reason, fmt.Sprintf("credential %q: %s %s", a.of.Credential, a.host, what), cause)
	f.Inside = fmt.Sprintf("Who mints the credential %s %s.", a.of.Credential, what)
	if said != "" {
		f.Text += ": " + said
	}
	return f
}

// Garbage is the failure for an answer that can't be used. what is text of ours.
func (a *Answer) Garbage(what string) error {
	return a.failed("answered what is no use: "+what, &finalError{"garbage"})
}

// Wide is the failure for a value that allows more than was asked for. what is
// what the provider said.
func (a *Answer) Wide(what string) error {
	return a.fail(task.PolicyCredential, "gave more than was asked for, which was given back", a.safe(what), nil)
}

// Until is when a value is over that its provider says ends at a time of its own
// clock, by ours.
func (a *Answer) Until(expires time.Time) time.Time { return a.Asked.Add(expires.Sub(a.clock())) }

// safe makes text of a provider's harmless: one short line of printable ASCII
// without what the question held.
func (a *Answer) safe(text string) string {
	for _, s := range a.of.Secrets {
		if s.Empty() {
			continue
		}
		v := s.Reveal()
		for _, form := range []string{v, url.QueryEscape(v), url.PathEscape(v), base64.StdEncoding.EncodeToString([]byte(v)), base64.RawURLEncoding.EncodeToString([]byte(v))} {
			text = strings.ReplaceAll(text, form, "[sealed]")
		}
	}
	var b strings.Builder
	for _, c := range text {
		if c < ' ' || c >= 0x7f {
			c = ' '
		}
		if b.Len() >= maxTold {
			break
		}
		b.WriteRune(c)
	}
	return strings.TrimSpace(b.String())
}
