package lender

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/plane"
	"github.com/cofferdam/cofferdam/internal/task"
)

// lent is an answer of the control plane.
type lent struct {
	value []byte
	asked time.Time     // before the question was sent
	keep  time.Duration // from asked on
	once  bool          // it is for one request
}

// ask asks until there is an answer or a refusal, or ctx ends.
func (l *Lender) ask(ctx context.Context, sandbox, lease string) (lent, error) {
	pause := firstPause
	for {
		a, err := l.once(ctx, sandbox, lease)
		if err == nil || refusal(err) || task.ReasonOf(err) == task.InfraCredential {
			return a, err
		}
		timer := time.NewTimer(pause)
		pause = min(2*pause, lastPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return lent{}, task.Fail(task.InfraControlAway, "the control plane did not lend the credential in time; see that cofferdamd runs", err)
		}
	}
}

// once asks once. A *task.Failure of class policy is a refusal, and one with
// task.InfraCredential comes from who mints the value; every other error may be
// gone in a moment.
func (l *Lender) once(ctx context.Context, sandbox, lease string) (lent, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	asked := l.now()
	data, err := l.plane.Ask(ctx, "/v1/gateway/lend", map[string]string{"sandbox": sandbox, "lease": lease})
	defer clear(data)
	if err != nil {
		return lent{}, refusedBy(err)
	}
	a, err := parse(data)
	a.asked = asked
	return a, err
}

// refusedBy tells what an answer that is none means.
func refusedBy(err error) error {
	r, ok := errors.AsType[*plane.Refused](err)
	if !ok {
		return err
	}
	var f *task.Failure
	switch r.Reason {
	case task.PolicyCredential:
		f = task.Fail(task.PolicyCredential, "the lease is not lent, or no longer: it was revoked, its stage ended, or who mints its value refuses", nil)
	case task.InfraCredential:
		f = task.Fail(task.InfraCredential, "who mints the credential's value does not answer as it should", nil)
	default:
		return err
	}
	f.Inside = r.Text
	return f
}

// parse reads an answer strictly. The errors hold nothing of it.
func parse(data []byte) (lent, error) {
	var a struct {
		Value     string    `json:"value"`
		ExpiresAt time.Time `json:"expiresAt"`
		Seconds   int       `json:"seconds"`
		Once      bool      `json:"once"`
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return lent{}, errors.New("answer: not the expected JSON")
	}
	if a.Value == "" || a.Seconds < 0 || a.Once != (a.Seconds == 0) {
		return lent{}, errors.New("answer: without a value or its time")
	}
	for _, c := range []byte(a.Value) {
		if c < ' ' || c >= 0x7f {
			return lent{}, errors.New("answer: the value can't be a header's")
		}
	}
	// How long it lasts is counted here: clocks of two machines differ.
	return lent{value: []byte(a.Value), once: a.Once, keep: min(time.Duration(a.Seconds)*time.Second, Keep)}, nil
}
