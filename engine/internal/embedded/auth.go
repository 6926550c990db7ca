package embedded

import (
	"context"
	"crypto/subtle"
	"strings"

	"go.temporal.io/server/common/authorization"
)

// claimMapper knows one caller: who shows the token.
type claimMapper struct{ token []byte }

func newClaimMapper(token string) authorization.ClaimMapper {
	return claimMapper{token: []byte(token)}
}

// GetClaims returns nil, which nothing is allowed to, without the token.
func (m claimMapper) GetClaims(info *authorization.AuthInfo) (*authorization.Claims, error) {
	if info == nil {
		return nil, nil
	}
	shown, ok := strings.CutPrefix(info.AuthToken, "Bearer ")
	if !ok || subtle.ConstantTimeCompare([]byte(shown), m.token) != 1 {
		return nil, nil
	}
	return &authorization.Claims{
		Subject:    "cofferdamd",
		System:     authorization.RoleReader,
		Namespaces: map[string]authorization.Role{Namespace: authorization.RoleWriter},
	}, nil
}

// authorizer is the server's own rules without their exceptions: not even a
// health check is answered to a caller without claims.
type authorizer struct{ rules authorization.Authorizer }

func newAuthorizer() authorization.Authorizer {
	return authorizer{rules: authorization.NewDefaultAuthorizer()}
}

// Authorize denies strangers. The server's own parts arrive at another
// listener, with claims of their own.
func (a authorizer) Authorize(ctx context.Context, claims *authorization.Claims, target *authorization.CallTarget) (authorization.Result, error) {
	if claims == nil {
		return authorization.Result{Decision: authorization.DecisionDeny, Reason: "no valid token"}, nil
	}
	return a.rules.Authorize(ctx, claims, target)
}
