package loop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// tries is how often a request is sent in one run before its trouble counts.
const (
	tries       = 6
	silentTries = 2 // each has waited long already
	longestWait = 2 * time.Minute
)

func digest(b []byte) task.Digest {
	sum := sha256.Sum256(b)
	return task.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// ask sends the request until it is answered or no try is left. Each sending is
// counted in the journal before it happens.
func (r *run) ask(ctx context.Context, t *stage.Turn, request []byte) (Answer, error) {
	silent := 0
	for try := 1; ; try++ {
		if err := r.afford(ctx); err != nil {
			return Answer{}, err
		}
		t.Requests++
		if err := r.Turns.SetTurn(ctx, r.job.Task, r.job.Attempt, *t); err != nil {
			return Answer{}, err
		}
		answer, err := r.model.Ask(ctx, request)
		if err == nil || ctx.Err() != nil {
			return answer, err
		}
		trouble := troubleOf(err)
		if failure := refusal(err); failure != nil {
			return answer, failure
		}
		if trouble.Kind == Silent {
			silent++
		}
		if trouble.Kind == Refused || try == tries || silent == silentTries {
			return answer, finalFailure(trouble, try, err)
		}
		if err := r.Sleep(ctx, pause(trouble, try)); err != nil {
			return answer, err
		}
	}
}

// refusal is the failure of a transport that will not let the request out. What
// could be otherwise a moment later is not among it.
func refusal(err error) *task.Failure {
	if failure, ok := errors.AsType[*task.Failure](err); ok {
		if c := failure.Reason.Class(); c == "policy" || c == "limit" || c == "input" {
			return failure
		}
	}
	return nil
}

func troubleOf(err error) *Trouble {
	var t *Trouble
	switch {
	case errors.As(err, &t):
		return t
	case errors.Is(err, errSilent):
		return &Trouble{Kind: Silent, Text: "it sent nothing for too long", Err: err}
	}
	return &Trouble{Kind: Faulty, Err: err}
}

// finalFailure is what the stage ends with. A transport's own reason says more
// than ours.
func finalFailure(t *Trouble, try int, cause error) *task.Failure {
	if failure, ok := errors.AsType[*task.Failure](cause); ok {
		return failure
	}
	text := t.Text
	if text == "" {
		text = "the connection failed or the answer was none"
	}
	switch t.Kind {
	case Refused:
		text = "the model's server refused the request: " + text + "; look at the key, the model's name and the provider"
	case Limited:
		text = fmt.Sprintf("the model's server said %d times that there are too many requests: %s", try, text)
	case Silent:
		text = fmt.Sprintf("the model's server was asked %d times and said nothing: %s", try, text)
	case Faulty:
		text = fmt.Sprintf("the model's server failed %d times: %s", try, text)
	}
	return task.Fail(t.Kind.reason(), text, cause)
}

// pause is how long to wait before the next try.
func pause(t *Trouble, try int) time.Duration {
	if t.After > 0 {
		return min(t.After, longestWait)
	}
	return min(time.Second<<(try-1), longestWait)
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	v := h.Get("Retry-After")
	if n, err := strconv.Atoi(v); err == nil && n >= 0 && n < 1<<30 {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// fitted is the request of the question, in which old results are left out as
// far as its size demands it.
func (r *run) fitted() ([]byte, error) {
	q := r.question
	for cut := 0; ; cut++ {
		request, err := r.model.Request(q)
		if err != nil {
			return nil, task.Fail(task.InfraInternal, "the question can't be put", err)
		}
		if len(request) <= r.Context {
			return request, nil
		}
		// The newest exchange stays whole: the model has not seen it yet.
		if cut >= len(q.Exchanges)-1 {
			return nil, task.Fail(task.AgentFailed, fmt.Sprintf("the conversation has grown to %d bytes and can't be made shorter; ask for smaller steps", len(request)), nil)
		}
		exchanges := append([]Exchange(nil), q.Exchanges...)
		results := append([]Result(nil), exchanges[cut].Results...)
		for i := range results {
			if n := len(results[i].Text); n > 200 {
				results[i].Text = fmt.Sprintf("[%d bytes were left out since the conversation is long; call the tool again for them]", n)
			}
		}
		exchanges[cut].Results = results
		q.Exchanges = exchanges
	}
}
