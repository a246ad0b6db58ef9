package rpcstatus

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/headgate/headgate/rules"
)

// errorDomain marks the details that one of our servers wrote.
const errorDomain = "headgate"

// Keys of the ErrorInfo's metadata.
const (
	metaRule      = "rule"
	metaState     = "state"
	metaHint      = "hint"
	metaDanger    = "danger"
	metaWay       = "way"
	metaPositions = "positions" // of the field violations, in their order
)

// internalText is all that a client learns of an error that has no kind.
const internalText = "internal error; its cause is in the server's log"

// A position is where a field violation stands in the files; BadRequest has no place for it.
type position struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// ToStatus returns the status an error travels as, and whether that says all that the error does. One that has no kind
// becomes Internal with a fixed text, one of a kind in which a driver may speak has a fixed text too: these must be
// logged. A status that a handler returned as such stays what it is.
func ToStatus(err error) (s *status.Status, whole bool) {
	k, ok := kindOf(err)
	if !ok {
		var own interface{ GRPCStatus() *status.Status }
		if errors.As(err, &own) {
			return own.GRPCStatus(), true
		}
		return status.New(codes.Internal, internalText), false
	}
	info := &errdetails.ErrorInfo{Reason: k.reason, Domain: errorDomain}
	details := []protoadapt.MessageV1{info}
	var invalid *rules.ValidationError
	var conflict *rules.ConflictError
	var guard *rules.GuardError
	switch {
	case errors.As(err, &invalid):
		info.Metadata = map[string]string{metaPositions: positions(invalid.Problems)}
		details = append(details, violations(invalid.Problems))
	case errors.As(err, &conflict):
		info.Metadata = map[string]string{
			metaRule: utf8Text(conflict.Rule), metaState: utf8Text(conflict.State), metaHint: utf8Text(conflict.Hint),
		}
	case errors.As(err, &guard):
		info.Metadata = map[string]string{
			metaRule: utf8Text(guard.Rule), metaDanger: utf8Text(guard.Danger), metaWay: utf8Text(guard.Way),
		}
	}
	s = status.New(k.code, cmp.Or(k.text, utf8Text(err.Error())))
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return s, k.text == ""
}

func violations(problems []rules.Problem) *errdetails.BadRequest {
	var b errdetails.BadRequest
	for _, p := range problems {
		b.FieldViolations = append(b.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field: utf8Text(p.Path), Description: utf8Text(p.Message), Reason: utf8Text(p.Code),
		})
	}
	return &b
}

func positions(problems []rules.Problem) string {
	list := make([]position, len(problems))
	for i, p := range problems {
		list[i] = position{p.File, p.Line, p.Column}
	}
	b, err := json.Marshal(list) // which also makes the text UTF-8
	if err != nil {
		return "" // not reached: strings and numbers
	}
	return string(b)
}

// utf8Text makes a text fit for protobuf, which refuses to carry anything but UTF-8: one bad byte in a file's name
// would lose all details.
func utf8Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
