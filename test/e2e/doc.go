// Package e2e runs the programs as a user would: built binaries as separate processes, real Postgres and Redis, real
// connections between them, and a real browser before the dashboard. Pictures of its pages are left with
//
//	go test ./test/e2e -run Dashboard -args -screenshots /tmp/pictures
package e2e
