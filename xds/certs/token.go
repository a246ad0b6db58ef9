package certs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"google.golang.org/grpc/credentials"
)

// maxToken is far above what a token has, and far below what a server takes as a header.
const maxToken = 4096

// TokenFile sends the token in a file with each call, as grpc.WithPerRPCCredentials wants it. The file is read for each
// call: calls are few, and a stream is one. While it cannot be read the token before is sent.
type TokenFile struct {
	path  string
	plain bool
	log   *slog.Logger

	mu      sync.Mutex
	token   string
	failing bool
}

var _ credentials.PerRPCCredentials = (*TokenFile)(nil)

// NewTokenFile reads the file for the first time. With plain, the token is also sent over connections without TLS, where
// whoever carries them can read it.
func NewTokenFile(path string, plain bool, log *slog.Logger) (*TokenFile, error) {
	token, err := readToken(path)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &TokenFile{path: path, plain: plain, log: log.With("component", "certs"), token: token}, nil
}

// GetRequestMetadata is part of credentials.PerRPCCredentials.
func (f *TokenFile) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	token, err := readToken(f.path)
	switch {
	case err == nil:
		f.token = token
	case !f.failing:
		f.log.Error("token file cannot be read: the token before is sent", "err", err)
	}
	f.failing = err != nil
	return map[string]string{"authorization": "Bearer " + f.token}, nil
}

// RequireTransportSecurity is part of credentials.PerRPCCredentials.
func (f *TokenFile) RequireTransportSecurity() bool { return !f.plain }

// readToken says what is wrong with a file, never what is in it.
func readToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err // which names the file
	}
	token := strings.TrimSpace(string(b))
	switch {
	case token == "":
		err = errors.New("it is empty")
	case len(token) > maxToken:
		err = errors.New("it is too long for a token")
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		err = errors.New("it holds more than one token, or something else")
	}
	if err != nil {
		return "", fmt.Errorf("token file %s: %w", path, err)
	}
	return token, nil
}
