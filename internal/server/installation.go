package server

import (
	"context"
	"net/http"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/server/doctor"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/paced"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/server/translate"
)

// keyNote goes with the audit's key.
const keyNote = "A key that came from the server proves nothing against the server: verify with a copy that was taken when the installation was made."

func (s *Server) describeInstallation() {
	register(s, operation.Operation{ID: "health", Method: http.MethodGet, Path: "/v1/health", Access: operation.Public, Summary: "Whether the server answers"}, s.health)
	register(s, operation.Operation{ID: "doctor", Method: http.MethodGet, Path: "/v1/doctor", Access: operation.Users, Summary: "What the server finds about itself and its workers"}, s.doctor)
	register(s, operation.Operation{ID: "list-workers", Method: http.MethodGet, Path: "/v1/workers", Access: operation.Users, Summary: "The machines that sandboxes run on"}, s.listWorkers)
	register(s, operation.Operation{
		ID: "export-audit", Method: http.MethodGet, Path: "/v1/audit/export", Access: operation.Admins, Kind: "application/jsonl",
		Summary: "The whole account, a JSON document a line",
	}, s.exportAudit)
	register(s, operation.Operation{ID: "audit-key", Method: http.MethodGet, Path: "/v1/audit/key", Access: operation.Users, Summary: "The key receipts are verified with"}, s.auditKey)
	register(s, operation.Operation{
		ID: "create-token", Method: http.MethodPost, Path: "/v1/tokens", Access: operation.Admins, Status: http.StatusCreated,
		Summary: "Make a token; its secret is shown once",
	}, s.createToken)
	register(s, operation.Operation{ID: "list-tokens", Method: http.MethodGet, Path: "/v1/tokens", Access: operation.Admins, Summary: "List tokens, without their secrets"}, s.listTokens)
	register(s, operation.Operation{ID: "remove-token", Method: http.MethodDelete, Path: "/v1/tokens/{id}", Access: operation.Admins, Summary: "Revoke a token at once"}, s.removeToken)
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
	out := api.Worker{
		Name: w.ID, State: w.State, Boot: w.Boot, Gateway: w.Gateway, Version: w.Version, Sandboxes: w.Sandboxes,
		ConnectedAt: translate.Moment(w.ConnectedAt), SeenAt: translate.Moment(w.SeenAt), Leftovers: []api.Leftover{},
	}
	if m := w.Mark; m.State != "" {
		out.Mark = &api.WorkerMark{State: m.State, Reason: m.Reason, By: m.By, At: m.At}
	}
	return out
}

type doctorOutput struct{ Body api.Doctor }

// doctor answers also when much is broken: each check stands for itself.
func (s *Server) doctor(ctx context.Context, _ *struct{}) (*doctorOutput, error) {
	desk := doctor.Desk{Probes: s.need.Probes, Workers: s.need.Workers, DataDir: s.dataDir, Log: s.log}
	return &doctorOutput{desk.Ask(ctx)}, nil
}

func (s *Server) exportAudit(context.Context, *struct{}) (*raw, error) {
	return s.stream("application/jsonl", map[string]string{"Content-Disposition": attachment("audit.jsonl")}, func(ctx context.Context, w *paced.Answer) error {
		return s.need.Audit.Export(ctx, w)
	}), nil
}

type auditKeyOutput struct{ Body api.AuditKey }

func (s *Server) auditKey(context.Context, *struct{}) (*auditKeyOutput, error) {
	key, former := s.auditKeys()
	return &auditKeyOutput{api.AuditKey{Key: key, Former: former, Note: keyNote}}, nil
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
			return nil, problem.NotFound("token", in.ID)
		}
		return nil, err
	}
	facts := map[string]any{"tokenId": in.ID, "by": who(ctx).User}
	return nil, s.need.Audit.Record(ctx, "", "token.remove/"+in.ID, "token.remove", seenBy, facts)
}
