// Package e2e runs the programs as a user would: built binaries as separate processes, real Postgres and Redis, real
// connections between them.
package e2e
