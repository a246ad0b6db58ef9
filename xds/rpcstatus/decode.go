package rpcstatus

import (
	"encoding/json"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/rules"
)

// An Error is a status as the client's side knows it: its text is the server's, and it is of the kind the server meant.
type Error struct {
	status *status.Status
	cause  error // what errors.Is and errors.As find; nil when the status stands for no kind
	server bool
}

func (e *Error) Error() string { return e.status.Message() }

// Unwrap returns the error that the status stands for.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus returns the status as it came.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// Answered reports that one of our servers gave the error, and not the connection on the way to it.
func Answered(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.server
}

// FromError returns the error that the status of a call stands for. An error that is no status, such as io.EOF at the
// end of a stream, is returned as it is.
func FromError(err error) error {
	var already *Error
	if err == nil || errors.As(err, &already) {
		return err
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	e := &Error{status: s}
	var info *errdetails.ErrorInfo
	var violations *errdetails.BadRequest
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == errorDomain {
				info = d
			}
		case *errdetails.BadRequest:
			violations = d
		}
	}
	e.server = info != nil
	k, ok := kindFor(info.GetReason(), s.Code())
	if !ok {
		return e
	}
	e.cause = k.err
	meta := info.GetMetadata()
	switch {
	case violations != nil && errors.Is(k.err, rules.ErrInvalid):
		e.cause = &rules.ValidationError{Problems: problems(violations, meta[metaPositions])}
	case meta[metaRule] != "" && errors.Is(k.err, rules.ErrConflict):
		e.cause = &rules.ConflictError{Rule: meta[metaRule], State: meta[metaState], Hint: meta[metaHint]}
	case meta[metaRule] != "" && errors.Is(k.err, rules.ErrGuarded):
		e.cause = &rules.GuardError{Rule: meta[metaRule], Danger: meta[metaDanger], Way: meta[metaWay]}
	}
	return e
}

func problems(violations *errdetails.BadRequest, positions string) []rules.Problem {
	var places []position
	if json.Unmarshal([]byte(positions), &places) != nil {
		places = nil // problems without places are better than none
	}
	list := make([]rules.Problem, len(violations.GetFieldViolations()))
	for i, v := range violations.GetFieldViolations() {
		list[i] = rules.Problem{Code: v.GetReason(), Path: v.GetField(), Message: v.GetDescription()}
		if i < len(places) {
			list[i].File, list[i].Line, list[i].Column = places[i].File, places[i].Line, places[i].Column
		}
	}
	return list
}
