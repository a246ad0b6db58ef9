package api

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// CreateCredential makes a token, or lets certificates with a name in.
func (s *Server) CreateCredential(ctx context.Context, req *adminpb.CreateCredentialRequest) (*adminpb.CreateCredentialResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	reason, err := why(ctx, &adminpb.Why{Message: req.GetMessage()})
	if err != nil {
		return nil, fmt.Errorf("create credential: %w", err)
	}
	token, c := access.NewToken()
	if req.GetCertificate() {
		token, c = "", access.NewCertificate(req.GetName())
	}
	c.Name, c.Role, c.Domains = req.GetName(), access.Role(req.GetRole()), req.GetDomains()
	if req.GetExpires() != nil {
		c.Expires = req.GetExpires().AsTime()
	}
	if c, err = s.service.AddCredential(ctx, c, reason); err != nil {
		return nil, err
	}
	return &adminpb.CreateCredentialResponse{Credential: credentialMessage(&c), Token: token}, nil
}

// ListCredentials returns what is known of the credentials.
func (s *Server) ListCredentials(ctx context.Context, _ *adminpb.ListCredentialsRequest) (*adminpb.ListCredentialsResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := identity(ctx).May(access.Admin, ""); err != nil {
		return nil, fmt.Errorf("list credentials: %w", err)
	}
	list, err := s.service.Credentials(ctx)
	if err != nil {
		return nil, fmt.Errorf("list credentials: %w", err)
	}
	resp := &adminpb.ListCredentialsResponse{Credentials: make([]*adminpb.Credential, len(list))}
	for i := range list {
		resp.Credentials[i] = credentialMessage(&list[i])
	}
	return resp, nil
}

func credentialMessage(c *access.Credential) *adminpb.Credential {
	return &adminpb.Credential{
		Id: c.ID, Kind: string(c.Kind), Name: c.Name, Role: string(c.Role), Domains: c.Domains,
		Created: timestamp(c.Created), Expires: timestamp(c.Expires), Revoked: timestamp(c.Revoked),
	}
}

// RevokeCredential ends one.
func (s *Server) RevokeCredential(ctx context.Context, req *adminpb.RevokeCredentialRequest) (*adminpb.RevokeCredentialResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	reason, err := why(ctx, &adminpb.Why{Message: req.GetMessage()})
	if err != nil {
		return nil, fmt.Errorf("revoke credential: %w", err)
	}
	return &adminpb.RevokeCredentialResponse{}, s.service.RevokeCredential(ctx, req.GetId(), reason)
}
