package server

import (
	"context"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/server/operation"
)

func (s *Server) describeCredentials() {
	register(s, operation.Operation{
		ID: "add-credential", Method: http.MethodPost, Path: "/v1/credentials", Access: operation.Admins, Status: http.StatusCreated,
		Summary: "Put a credential into the vault; no answer ever holds its value", Max: 64 << 10,
	}, s.addCredential)
	register(s, operation.Operation{
		ID: "list-credentials", Method: http.MethodGet, Path: "/v1/credentials", Access: operation.Users,
		Summary: "The credentials that the caller may see, without their values",
	}, s.listCredentials)
	register(s, operation.Operation{
		ID: "revoke-credential", Method: http.MethodPost, Path: "/v1/credentials/{name}/revoke", Access: operation.Users,
		Summary: "Wipe a credential's value and end what is lent of it, at once",
	}, func(ctx context.Context, in *credentialPath) (*credentialEndOutput, error) {
		return s.endCredential(ctx, in.Name, false)
	})
	register(s, operation.Operation{
		ID: "remove-credential", Method: http.MethodDelete, Path: "/v1/credentials/{name}", Access: operation.Users, Status: http.StatusOK,
		Summary: "Revoke a credential and forget it, so that its name is free",
	}, func(ctx context.Context, in *credentialPath) (*credentialEndOutput, error) {
		return s.endCredential(ctx, in.Name, true)
	})
	register(s, operation.Operation{
		ID: "lend", Method: http.MethodPost, Path: "/v1/gateway/lend", Access: operation.Gateways, Status: http.StatusOK,
		Summary: "Lend a gateway the value of an active lease of one of its sandboxes", Max: 4 << 10,
	}, s.lend)
}

type addCredentialInput struct{ Body api.CredentialRequest }

type credentialOutput struct{ Body api.Credential }

func (s *Server) addCredential(ctx context.Context, in *addCredentialInput) (*credentialOutput, error) {
	c, err := s.need.Credentials.Add(ctx, who(ctx), in.Body)
	if err != nil {
		return nil, err
	}
	return &credentialOutput{c}, nil
}

type credentialListOutput struct{ Body api.CredentialList }

func (s *Server) listCredentials(ctx context.Context, _ *struct{}) (*credentialListOutput, error) {
	list, err := s.need.Credentials.List(ctx, who(ctx))
	return &credentialListOutput{list}, err
}

type credentialPath struct {
	Name string `path:"name" maxLength:"63"`
}

type credentialEndOutput struct{ Body api.CredentialEnd }

func (s *Server) endCredential(ctx context.Context, name string, remove bool) (*credentialEndOutput, error) {
	end, err := s.need.Credentials.End(ctx, who(ctx), name, remove)
	if err != nil {
		return nil, err
	}
	return &credentialEndOutput{end}, nil
}

type lendInput struct{ Body api.LendRequest }

type lendOutput struct{ Body api.LendAnswer }

func (s *Server) lend(ctx context.Context, in *lendInput) (*lendOutput, error) {
	a, err := s.need.Credentials.Lend(ctx, who(ctx), in.Body)
	if err != nil {
		return nil, err
	}
	return &lendOutput{a}, nil
}
