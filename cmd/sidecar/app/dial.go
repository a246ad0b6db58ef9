package app

import (
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/xds/certs"
	"github.com/headgate/headgate/xds/rpcstatus"
	"github.com/headgate/headgate/xds/subscribe"
)

// dial returns the connection to the control plane; nothing is sent yet. Files that cannot be read are an error at start
// only: later the ones before stay.
func dial(config Config, reg prometheus.Registerer, log *slog.Logger) (*grpc.ClientConn, error) {
	trust := config.Trust
	options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	words := grpc.WithChainStreamInterceptor(rpcstatus.StreamClient())
	if trust.CA != "" {
		client, err := certs.NewClient(certs.Files{Cert: trust.Cert, Key: trust.Key, CA: trust.CA}, trust.ServerName,
			certs.Options{Log: log, Registerer: reg})
		if err != nil {
			return nil, fmt.Errorf("--controlplane-ca, --controlplane-cert, --controlplane-key: %w", err)
		}
		options = []grpc.DialOption{grpc.WithTransportCredentials(client.Credentials())}
	}
	if trust.TokenFile != "" {
		// Without TLS Validate has let it through: the way is this host's, or --insecure.
		token, err := certs.NewTokenFile(trust.TokenFile, trust.CA == "", log)
		if err != nil {
			return nil, fmt.Errorf("--controlplane-token-file: %w", err)
		}
		options = append(options, grpc.WithPerRPCCredentials(token))
	}
	conn, err := subscribe.Dial(config.ControlPlane, append(options, words)...)
	if err != nil {
		return nil, fmt.Errorf("--controlplane %s: %w", config.ControlPlane, err)
	}
	return conn, nil
}
