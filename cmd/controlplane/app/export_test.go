package app

import (
	"net/http"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/storage"
)

// Services are those of the gRPC port.
func (a *App) Services() map[string]grpc.ServiceInfo { return a.grpc.GetServiceInfo() }

// Store is the database.
func (a *App) Store() storage.Store { return a.store }

// Profile serves profiles.
var Profile http.HandlerFunc = profile
