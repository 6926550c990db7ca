// Package runidentity is the part of the server that speaks of who runs are: what
// relying parties look up, which anybody may, and the keys, which administrators
// rotate. It translates for the issuer and decides nothing.
package runidentity

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/identity/issuer"
	"github.com/cofferdam/cofferdam/internal/server/operation"
)

// Desk answers for the issuer, which is required.
type Desk struct{ Issuer *issuer.Issuer }

// Describe registers its operations.
func (d *Desk) Describe(door *operation.Door) {
	const kind = "application/json"
	operation.Register(door, operation.Operation{
		ID: "openid-configuration", Method: http.MethodGet, Path: issuer.DiscoveryPath, Access: operation.Public, Kind: kind,
		Summary: "Where the keys are that tokens of runs are signed with, for relying parties (OpenID Connect Discovery 1.0)",
	}, func(context.Context, *struct{}) (*published, error) {
		doc, err := d.Issuer.Discovery()
		return publish(doc, err)
	})
	operation.Register(door, operation.Operation{
		ID: "identity-keys", Method: http.MethodGet, Path: issuer.KeysPath, Access: operation.Public, Kind: kind,
		Summary: "The public keys that tokens of runs are signed with (RFC 7517)",
	}, func(context.Context, *struct{}) (*published, error) {
		set, err := d.Issuer.KeySet()
		return publish(set, err)
	})
	operation.Register(door, operation.Operation{
		ID: "show-identity", Method: http.MethodGet, Path: "/v1/identity", Access: operation.Users,
		Summary: "The issuer of the tokens that say who a run is, and its keys",
	}, func(context.Context, *struct{}) (*output, error) {
		keys, err := d.Issuer.Keys()
		return d.show(keys, err)
	})
	operation.Register(door, operation.Operation{
		ID: "rotate-identity", Method: http.MethodPost, Path: "/v1/identity/rotate", Access: operation.Admins, Status: http.StatusOK,
		Summary: "Make a new key: it is published at once and signs when relying parties have it",
	}, func(ctx context.Context, in *rotation) (*output, error) {
		keys, err := d.Issuer.Rotate(ctx, in.Body.Algorithm, operation.Who(ctx).User, in.Body.Now)
		return d.show(keys, err)
	})
}

// published is a document for relying parties, byte by byte what is exported.
type published struct {
	Type  string `header:"Content-Type"`
	Cache string `header:"Cache-Control"`
	Body  []byte
}

func publish(doc any, err error) (*published, error) {
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	return &published{"application/json", fmt.Sprintf("public, max-age=%d", int(issuer.CacheTime/time.Second)), append(text, '\n')}, nil
}

type rotation struct{ Body api.IdentityRotation }

type output struct{ Body api.RunIdentity }

func (d *Desk) show(keys []issuer.Key, err error) (*output, error) {
	if err != nil {
		return nil, err
	}
	out := api.RunIdentity{Issuer: d.Issuer.URL(), Discovery: d.Issuer.URL() + issuer.DiscoveryPath, Keys: []api.IdentityKey{}}
	for _, k := range keys {
		out.Keys = append(out.Keys, api.IdentityKey{
			ID: k.ID, Algorithm: k.Alg, State: string(k.State), CreatedAt: k.Made, SignsFrom: k.From, PublishedUntil: k.Until,
		})
	}
	return &output{out}, nil
}
