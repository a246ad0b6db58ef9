package rpcstatus

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate/rules"
)

// A kind is one row of the two-way table.
type kind struct {
	err    error
	code   codes.Code
	reason string // of the ErrorInfo: stable, for programs that are not ours
	// text is all that leaves the server of an error of the kind, for kinds in which a database's driver may speak: it names
	// hosts and users. Where it is empty, the error's own text does.
	text string
}

// unavailableText stands for every reason why the database gives no answer, also in the middle of a commit.
const unavailableText = "unavailable: the database cannot be asked at the moment; the control plane's log says why, " +
	"and the audit trail whether a change was made"

// kinds is the table. An error that is of several kinds travels as the first. Aborted is the code of a conflict, since
// gateways answer it with HTTP 409.
func kinds() []kind {
	return []kind{
		{rules.ErrInvalid, codes.InvalidArgument, "INVALID", ""},
		{rules.ErrConflict, codes.Aborted, "CONFLICT", ""},
		{rules.ErrNotFound, codes.NotFound, "NOT_FOUND", ""},
		{rules.ErrGuarded, codes.FailedPrecondition, "GUARDED", ""},
		{rules.ErrUnauthenticated, codes.Unauthenticated, "UNAUTHENTICATED", ""},
		{rules.ErrForbidden, codes.PermissionDenied, "FORBIDDEN", ""},
		{rules.ErrUnavailable, codes.Unavailable, "UNAVAILABLE", unavailableText},
		{context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE_EXCEEDED", context.DeadlineExceeded.Error()},
		{context.Canceled, codes.Canceled, "CANCELED", context.Canceled.Error()},
	}
}

func kindOf(err error) (kind, bool) {
	for _, k := range kinds() {
		if errors.Is(err, k.err) {
			return k, true
		}
	}
	return kind{}, false
}

// kindFor returns the kind that a status stands for: by reason where one of our servers gave one, else by code.
func kindFor(reason string, code codes.Code) (kind, bool) {
	for _, k := range kinds() {
		if k.reason == reason {
			return k, true
		}
	}
	for _, k := range kinds() {
		if k.code == code {
			return k, true
		}
	}
	return kind{}, false
}
