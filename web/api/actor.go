package api

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/web/api/adminpb"
)

// unknownActor stands in the audit record where the client said nothing.
const unknownActor = "unknown"

// actor returns who asks as the client says it, marked unverified.
func actor(ctx context.Context) rollout.Actor {
	name := adminpb.UnescapeActor(strings.Join(metadata.ValueFromIncomingContext(ctx, adminpb.ActorKey), ","))
	name = strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1 // a name with a line break could pass for two records
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD")))
	if name == "" {
		name = unknownActor
	}
	if len(name) > maxActor {
		name = strings.ToValidUTF8(name[:maxActor], "")
	}
	return rollout.Actor{Name: name}
}

func checkWhy(ctx context.Context, message string) (rollout.Why, error) {
	if len(message) > maxMessage {
		return rollout.Why{}, fmt.Errorf("%w: the message has %d bytes; at most %d are kept", rules.ErrInvalid, len(message), maxMessage)
	}
	if strings.ContainsRune(message, 0) {
		return rollout.Why{}, fmt.Errorf("%w: the message has a NUL in it", rules.ErrInvalid)
	}
	return rollout.Why{Actor: actor(ctx), Message: message}, nil
}

func checkChange(ctx context.Context, domain, rule, message string) (rollout.Why, error) {
	if problem := rules.CheckName(domain); problem != "" {
		return rollout.Why{}, fmt.Errorf("%w: domain: %s", rules.ErrInvalid, problem)
	}
	if problem := rules.CheckName(rule); problem != "" {
		return rollout.Why{}, fmt.Errorf("%w: rule: %s", rules.ErrInvalid, problem)
	}
	return checkWhy(ctx, message)
}
