// Package api is the control plane's admin service over gRPC: what rulectl and other programs ask of it.
//
// It translates and bounds, and decides nothing: rule files are decoded by package rulefile, changes are made by a
// [rollout.Service]. Handlers return the errors of package rules; an interceptor of the server turns them into
// statuses. Requests are validated here however well the client did it, since anybody can be the client.
package api
