package api

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"unicode"

	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// unknownActor stands in the audit record where nobody said a name.
const unknownActor = "unknown"

// identity returns who asks. Where nobody is asked who they are, it is called as the client says, or else as the door
// does, and unverified.
func identity(ctx context.Context) access.Identity {
	who := access.From(ctx)
	if who.Local {
		who.Name = cmp.Or(claimed(ctx), who.Name, unknownActor)
	}
	return who
}

// claimed is the name that the client says; "" when it says none.
func claimed(ctx context.Context) string {
	name := adminpb.UnescapeActor(strings.Join(metadata.ValueFromIncomingContext(ctx, adminpb.ActorKey), ","))
	name = strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1 // a name with a line break could pass for two records
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD")))
	if len(name) > maxActor {
		name = strings.ToValidUTF8(name[:maxActor], "")
	}
	return name
}

// why takes a change's reason off the wire.
func why(ctx context.Context, w *adminpb.Why) (rollout.Why, error) {
	out := rollout.Why{Who: identity(ctx), Message: w.GetMessage(), Base: w.GetExpectRevision(), Dry: w.GetDryRun()}
	if len(out.Message) > maxMessage {
		return rollout.Why{}, fmt.Errorf("%w: the message has %d bytes; at most %d are kept", rules.ErrInvalid, len(out.Message), maxMessage)
	}
	if strings.ContainsRune(out.Message, 0) {
		return rollout.Why{}, fmt.Errorf("%w: the message has a NUL in it", rules.ErrInvalid)
	}
	if out.Base < 0 {
		return rollout.Why{}, fmt.Errorf("%w: expect_revision is %d; revisions begin with 1", rules.ErrInvalid, out.Base)
	}
	return out, nil
}

func checkDomain(domain string) error {
	if problem := rules.CheckName(domain); problem != "" {
		return fmt.Errorf("%w: domain: %s", rules.ErrInvalid, problem)
	}
	return nil
}

func checkRule(domain, rule string) error {
	if err := checkDomain(domain); err != nil {
		return err
	}
	if problem := rules.CheckName(rule); problem != "" {
		return fmt.Errorf("%w: rule: %s", rules.ErrInvalid, problem)
	}
	return nil
}
