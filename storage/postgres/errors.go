package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/headgate/headgate/rules"
)

// fail says what was attempted, and gives err the kind its code stands for. Where ctx has ended, that is the error,
// whatever became of the connection over it.
func fail(ctx context.Context, attempt string, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%s: %w: %w", attempt, cause, err)
	} else if cause != nil {
		return fmt.Errorf("%s: %w", attempt, err)
	}
	if kind := kindOf(err); kind != nil && !errors.Is(err, kind) {
		return fmt.Errorf("%s: %w: %w", attempt, kind, err)
	}
	return fmt.Errorf("%s: %w", attempt, err)
}

// kindOf returns nil for what is nobody's fault but the program's.
func kindOf(err error) error {
	var (
		connect *pgconn.ConnectError
		network net.Error
		answer  *pgconn.PgError
	)
	switch {
	case errors.As(err, &connect): // also a refused password: until somebody mends it there is no database
		return rules.ErrUnavailable
	case errors.As(err, &answer):
		return kindOfCode(answer.Code)
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, pgconn.ErrConnClosed), errors.Is(err, puddle.ErrClosedPool), pgconn.Timeout(err):
		return rules.ErrUnavailable
	}
	return nil
}

// kindOfCode follows the classes of PostgreSQL's error codes.
func kindOfCode(code string) error {
	switch code {
	case "23505": // unique_violation
		return rules.ErrConflict
	case "25006", // read_only_sql_transaction: a standby, after a failover
		"25P03": // idle_in_transaction_session_timeout: see lockHead
		return rules.ErrUnavailable
	}
	switch code[:min(2, len(code))] {
	case "22": // data exception: a value that no column takes
		return rules.ErrInvalid
	case "08", // connection exception
		"40", // transaction rollback, such as a deadlock
		"53", // insufficient resources
		"55", // object not in prerequisite state, such as a lock not available
		"57", // operator intervention, such as a shutdown
		"58": // system error
		return rules.ErrUnavailable
	}
	return nil
}

// refused reports whether a failed COMMIT certainly stored nothing: the server said so, by a constraint that is checked
// at the end, or by rolling back. After anything else, such as a connection that broke, nobody here can tell.
func refused(err error) bool {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return false
	}
	class := answer.Code[:min(2, len(answer.Code))]
	return class == "23" || class == "40"
}
