package server

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/server/translate"
)

// keyNote goes with the audit's key.
const keyNote = "A key that came from the server proves nothing against the server: verify with a copy that was taken when the installation was made."

func (s *Server) describeInstallation() {
	register(s, operation{id: "health", method: http.MethodGet, path: "/v1/health", access: public, summary: "Whether the server answers"}, s.health)
	register(s, operation{id: "doctor", method: http.MethodGet, path: "/v1/doctor", access: users, summary: "What the server finds about itself and its workers"}, s.doctor)
	register(s, operation{id: "list-workers", method: http.MethodGet, path: "/v1/workers", access: users, summary: "The machines that sandboxes run on"}, s.listWorkers)
	register(s, operation{
		id: "export-audit", method: http.MethodGet, path: "/v1/audit/export", access: admins, kind: "application/jsonl",
		summary: "The whole account, a JSON document a line",
	}, s.exportAudit)
	register(s, operation{id: "audit-key", method: http.MethodGet, path: "/v1/audit/key", access: users, summary: "The key receipts are verified with"}, s.auditKey)
	register(s, operation{
		id: "create-token", method: http.MethodPost, path: "/v1/tokens", access: admins, status: http.StatusCreated,
		summary: "Make a token; its secret is shown once",
	}, s.createToken)
	register(s, operation{id: "list-tokens", method: http.MethodGet, path: "/v1/tokens", access: admins, summary: "List tokens, without their secrets"}, s.listTokens)
	register(s, operation{id: "remove-token", method: http.MethodDelete, path: "/v1/tokens/{id}", access: admins, summary: "Revoke a token at once"}, s.removeToken)
}

type healthOutput struct{ Body api.Health }

func (s *Server) health(context.Context, *struct{}) (*healthOutput, error) {
	return &healthOutput{api.Health{Boot: s.boot, Version: s.version}}, nil
}

type workersOutput struct{ Body api.WorkerList }

func (s *Server) listWorkers(context.Context, *struct{}) (*workersOutput, error) {
	out := &workersOutput{api.WorkerList{Workers: []api.Worker{}}}
	for _, w := range s.need.Workers.Workers() {
		out.Body.Workers = append(out.Body.Workers, apiWorker(w))
	}
	return out, nil
}

func apiWorker(w fleet.Worker) api.Worker {
	return api.Worker{
		Name: w.ID, State: w.State, Boot: w.Boot, Gateway: w.Gateway, Version: w.Version, Sandboxes: w.Sandboxes,
		ConnectedAt: translate.Moment(w.ConnectedAt), SeenAt: translate.Moment(w.SeenAt), Leftovers: []api.Leftover{},
	}
}

type doctorOutput struct{ Body api.Doctor }

// doctor answers also when much is broken: each check stands for itself.
func (s *Server) doctor(ctx context.Context, _ *struct{}) (*doctorOutput, error) {
	var checks []api.Check
	for _, p := range s.need.Probes {
		checks = append(checks, s.probe(ctx, p))
	}
	if s.dataDir != "" {
		checks = append(checks, diskCheck(s.dataDir))
	}
	checks = append(checks, s.workerChecks(ctx)...)
	out := &doctorOutput{api.Doctor{OK: true, Checks: checks}}
	for _, c := range checks {
		if c.Outcome == api.CheckFailed || len(c.Leftovers) > 0 {
			out.Body.OK = false
		}
	}
	return out, nil
}

// probeTime bounds one question of doctor's.
const probeTime = 5 * time.Second

func (s *Server) probe(ctx context.Context, p Probe) api.Check {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if err := p.Ask(ctx); err != nil {
		s.log.WarnContext(ctx, "doctor: check failed", "check", p.ID, "error", err.Error())
		return api.Check{ID: p.ID, Outcome: api.CheckFailed, Text: problemOf(err).Detail + "; " + p.Fix}
	}
	return api.Check{ID: p.ID, Outcome: api.CheckOK, Text: p.OK}
}

// Free space below which doctor warns and fails.
const (
	lowDisk   = 2 << 30
	emptyDisk = 256 << 20
)

func diskCheck(dir string) api.Check {
	c := api.Check{ID: "disk", Outcome: api.CheckOK}
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		c.Outcome, c.Text = api.CheckFailed, "the data folder can't be looked at: "+err.Error()
		return c
	}
	free := int64(st.Bavail) * st.Bsize
	c.Text = fmt.Sprintf("%d MiB free in the data folder", free>>20)
	switch {
	case free < emptyDisk:
		c.Outcome, c.Text = api.CheckFailed, c.Text+"; make room, or tasks will fail with infra.storage"
	case free < lowDisk:
		c.Outcome, c.Text = api.CheckWarning, c.Text+"; make room soon"
	}
	return c
}

// heldNow counts the sandboxes of a ledger, which is younger than what the worker
// said when it connected.
func heldNow(r fleet.Report) int {
	held := map[string]bool{}
	for _, record := range r.Doctor.Ledger {
		held[record.Sandbox] = true
	}
	return len(held)
}

// workerChecks asks every worker about itself; what it holds beyond its
// sandboxes is a leftover.
func (s *Server) workerChecks(ctx context.Context) []api.Check {
	reports := s.need.Workers.Doctor(ctx)
	if len(reports) == 0 {
		return []api.Check{{ID: "workers", Outcome: api.CheckFailed, Text: "no worker has connected since the server started; start cofferdam-worker and see its log"}}
	}
	var checks []api.Check
	for _, r := range reports {
		name := "worker." + r.Worker.ID
		if r.Err != nil {
			checks = append(checks, api.Check{ID: name, Outcome: api.CheckFailed, Text: problemOf(r.Err).Detail})
			continue
		}
		checks = append(checks, api.Check{ID: name, Outcome: api.CheckOK, Text: fmt.Sprintf("connected, boot %s, sandboxes: %d", r.Worker.Boot, heldNow(r))})
		if r.Worker.Gateway == "" {
			checks = append(checks, api.Check{
				ID: "gateway." + r.Worker.ID, Outcome: api.CheckFailed,
				Text: "no gateway answers on this machine: sandboxes there reach nothing; see the log of cofferdam-gateway",
			})
		} else {
			checks = append(checks, api.Check{ID: "gateway." + r.Worker.ID, Outcome: api.CheckOK, Text: "epoch " + r.Worker.Gateway})
		}
		for _, c := range r.Doctor.Checks {
			checks = append(checks, api.Check{ID: name + "." + c.ID, Outcome: c.Outcome, Text: c.Text})
		}
		checks = append(checks, leftoverCheck(name, r.Doctor.Leftovers))
	}
	return checks
}

func leftoverCheck(name string, list []sandbox.Leftover) api.Check {
	c := api.Check{ID: name + ".leftovers", Outcome: api.CheckOK, Text: "nothing is left over"}
	for _, l := range list {
		c.Leftovers = append(c.Leftovers, api.Leftover{Kind: l.Kind, Name: l.Name, Sandbox: l.Sandbox, Detail: l.Detail})
	}
	if n := len(list); n > 0 {
		c.Outcome, c.Text = api.CheckFailed, fmt.Sprintf("%d objects that no record explains; remove them, or restart the worker, which removes its own", n)
	}
	return c
}

func (s *Server) exportAudit(context.Context, *struct{}) (*raw, error) {
	return s.stream("application/jsonl", map[string]string{"Content-Disposition": attachment("audit.jsonl")}, func(ctx context.Context, w *answer) error {
		return s.need.Audit.Export(ctx, w)
	}), nil
}

type auditKeyOutput struct{ Body api.AuditKey }

func (s *Server) auditKey(context.Context, *struct{}) (*auditKeyOutput, error) {
	return &auditKeyOutput{api.AuditKey{Key: s.auditPublic, Note: keyNote}}, nil
}

type createTokenInput struct{ Body api.TokenRequest }

type tokenOutput struct{ Body api.Token }

func (s *Server) createToken(ctx context.Context, in *createTokenInput) (*tokenOutput, error) {
	t, secret, err := s.identities.Issue(ctx, identity.Request{
		User: in.Body.User, Role: identity.Role(in.Body.Role), Note: in.Body.Note,
		TTL: time.Duration(in.Body.ExpireDays) * 24 * time.Hour,
	})
	if err != nil {
		return nil, err
	}
	facts := map[string]any{"tokenId": t.ID, "user": t.User, "role": string(t.Role), "by": who(ctx).User}
	if err := s.need.Audit.Record(ctx, "", "token.create/"+t.ID, "token.create", seenBy, facts); err != nil {
		// A token that is not in the account must not work.
		if undo := s.identities.Remove(context.WithoutCancel(ctx), t.ID); undo != nil {
			s.log.ErrorContext(ctx, "token without a record stays", "token", t.ID, "error", undo.Error())
		}
		return nil, err
	}
	out := translate.Token(t)
	out.Secret = secret.Reveal()
	return &tokenOutput{out}, nil
}

type tokensOutput struct{ Body api.TokenList }

func (s *Server) listTokens(ctx context.Context, _ *struct{}) (*tokensOutput, error) {
	list, err := s.identities.List(ctx)
	if err != nil {
		return nil, err
	}
	out := &tokensOutput{api.TokenList{Tokens: []api.Token{}}}
	for _, t := range list {
		out.Body.Tokens = append(out.Body.Tokens, translate.Token(t))
	}
	return out, nil
}

type tokenPath struct {
	ID string `path:"id" maxLength:"64"`
}

func (s *Server) removeToken(ctx context.Context, in *tokenPath) (*struct{}, error) {
	if err := s.identities.Remove(ctx, in.ID); err != nil {
		if isNotFound(err) {
			return nil, notFound("token", in.ID)
		}
		return nil, err
	}
	facts := map[string]any{"tokenId": in.ID, "by": who(ctx).User}
	return nil, s.need.Audit.Record(ctx, "", "token.remove/"+in.ID, "token.remove", seenBy, facts)
}
