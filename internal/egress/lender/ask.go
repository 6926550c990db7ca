package lender

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// maxAnswer bounds an answer.
const maxAnswer = 64 << 10

// maxToken bounds the token's file.
const maxToken = 4 << 10

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
		if err == nil || refusal(err) || reasonOf(err) == task.InfraCredential {
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
	token, err := readToken(l.tokenFile)
	if err != nil {
		return lent{}, err
	}
	body, err := json.Marshal(map[string]string{"sandbox": sandbox, "lease": lease})
	if err != nil {
		return lent{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(body))
	if err != nil {
		return lent{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token.Reveal())
	asked := l.now()
	resp, err := l.client.Do(req)
	if err != nil {
		return lent{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	defer clear(data)
	if err != nil {
		return lent{}, fmt.Errorf("answer: %w", err)
	}
	if len(data) > maxAnswer {
		return lent{}, errors.New("answer: too long")
	}
	if resp.StatusCode != http.StatusOK {
		return lent{}, refusedBy(resp, data)
	}
	a, err := parse(data)
	a.asked = asked
	return a, err
}

// refusedBy tells what an answer that is none says. Only a refusal with the
// code of one counts as such: anything else may come from something in between.
func refusedBy(resp *http.Response, data []byte) error {
	var p struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if kind == "application/problem+json" && json.Unmarshal(data, &p) == nil {
		switch task.Reason(p.Code) {
		case task.PolicyCredential:
			return task.Fail(task.PolicyCredential, "the lease is not lent, or no longer: it was revoked, its stage ended, or who mints its value refuses", nil)
		case task.InfraCredential:
			return task.Fail(task.InfraCredential, "who mints the credential's value does not answer as it should", nil)
		}
	}
	if resp.StatusCode == http.StatusUnauthorized {
		return errors.New("the control plane does not accept the gateway's token")
	}
	return fmt.Errorf("the control plane answered %d", resp.StatusCode)
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

func readToken(path string) (task.Secret, error) {
	f, err := os.Open(path)
	if err != nil {
		return task.Secret{}, fmt.Errorf("the gateway's token: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return task.Secret{}, fmt.Errorf("the gateway's token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\r\n\x00") {
		return task.Secret{}, errors.New("the gateway's token: the file holds none")
	}
	return task.NewSecret(token), nil
}
