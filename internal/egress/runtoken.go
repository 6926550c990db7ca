package egress

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/refusal"
	"github.com/cofferdam/cofferdam/internal/task"
)

// tokenWait is how long a stage waits for a token while the control plane is
// away.
const tokenWait = 30 * time.Second

// wish is what a request for a token of the run's identity comes to: a lease, or
// why not.
type wish struct {
	lease  *task.Lease
	status int
	reason task.Reason
	text   string
}

// wishOf judges a request for a token under a grant: its request token first, so
// that who has another stage's learns nothing of this one's.
func wishOf(grant task.Grant, r *http.Request) wish {
	refused := func(text string) wish { return wish{nil, http.StatusForbidden, task.PolicyCredential, text} }
	field := string(grant.Stage) + ".identity"
	var mine []task.Lease
	for _, l := range grant.Leases {
		if l.OfIdentity() && l.Placeholder != "" {
			mine = append(mine, l)
		}
	}
	if len(mine) == 0 {
		return refused("No tokens that say who the run is are given to this stage; policy names their audiences under the stage's identity.")
	}
	given := r.Header.Values("Authorization")
	scheme, token := "", ""
	if len(given) == 1 {
		scheme, token, _ = strings.Cut(given[0], " ")
	}
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare([]byte(token), []byte(mine[0].Placeholder)) != 1 {
		return refused("The request token is not the one of this stage. Send what " + task.TokenEnv + " holds, as Authorization: Bearer.")
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(q["audience"]) != 1 || q.Get("audience") == "" {
		return wish{nil, http.StatusBadRequest, task.InputInvalid, "Say for whom the token is: append &audience= and one audience to " + task.TokenURLEnv + "."}
	}
	for i, l := range mine {
		if l.Settings[task.SettingAudience] != q.Get("audience") {
			continue
		}
		if _, ok := l.HandsOver(); !ok {
			return refused("Policy gives this stage no token for that audience to see. It must say visible: true for it under " + field + ", or lend a credential of kind oidc to the requests that need one.")
		}
		return wish{lease: &mine[i]}
	}
	return refused("Policy does not name that audience for this stage, under " + field + ".")
}

// runToken answers as the token service of GitHub Actions does: the token is for
// the one who asked, made for this answer and kept nowhere.
func runToken(x *exchanges, w http.ResponseWriter, r *http.Request, n int64) {
	c := x.connection
	if r.Method != http.MethodGet || r.URL.EscapedPath() != task.TokenPath {
		x.deny(w, r, n, task.Decision{Reason: task.PolicyDenied}, false)
		return
	}
	rec := x.recordOf(r, n, task.Decision{})
	rec.Rule = string(c.grant.Stage) + ".identity"
	asked := wishOf(c.grant, r)
	if asked.lease == nil {
		rec.Verdict, rec.Reason = task.Denied.String(), asked.reason
		c.way.records.Deny(rec)
		tellToken(w, rec, asked.status, asked.text)
		return
	}
	rec.Verdict, rec.Lease = task.Allowed.String(), asked.lease.ID
	if err := c.way.records.Append(rec); err != nil {
		c.way.log.Error("decision log", "error", err)
		c.writeProblem(w, r, refusal.Problem{Code: task.InfraStorage})
		return
	}
	rec.Done = true
	token, reason := c.token(r.Context(), *asked.lease)
	switch {
	case reason == task.PolicyCredential:
		rec.Verdict, rec.Reason, rec.Status = task.Denied.String(), reason, http.StatusForbidden
		tellToken(w, rec, rec.Status, "The lease of this token has ended, or this installation has no issuer that signs it.")
	case reason != task.ReasonNone:
		rec.Reason, rec.Status = reason, http.StatusServiceUnavailable
		tellToken(w, rec, rec.Status, refusal.Hint(reason))
	default:
		rec.Status = http.StatusOK
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(map[string]string{"value": token.Reveal()})
	}
	if err := c.way.records.Append(rec); err != nil {
		c.way.log.Error("decision log", "error", err)
	}
}

// token has one made.
func (c *connection) token(ctx context.Context, lease task.Lease) (task.Secret, task.Reason) {
	lender := c.way.gateway.options.Lender
	if lender == nil {
		return task.Secret{}, task.InfraControlAway
	}
	ctx, cancel := context.WithTimeout(ctx, tokenWait)
	defer cancel()
	token, err := lender.Value(ctx, c.grant.Sandbox, lease)
	var f *task.Failure
	switch {
	case err == nil && (token.Empty() || token.Reveal() == lease.Placeholder):
		return task.Secret{}, task.PolicyCredential
	case err == nil:
		return token, task.ReasonNone
	case errors.As(err, &f) && f.Reason.Class() == "policy":
		return task.Secret{}, task.PolicyCredential
	}
	return task.Secret{}, task.InfraControlAway
}

// tellToken tells a refusal in words.
func tellToken(w http.ResponseWriter, rec task.EgressRecord, status int, text string) {
	p := refusal.Problem{Title: http.StatusText(status), Status: status, Code: rec.Reason, Rule: rec.Rule, Host: rec.Name, Port: rec.Port, Method: rec.Method, Path: rec.Path, Hint: text}
	w.Header().Set("Cache-Control", "no-store")
	p.Write(w)
}
