package cli_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/web/api/adminpb"
)

// ledger is a control plane that says of its audit trail what the test lets it say.
type ledger struct {
	adminpb.UnimplementedAdminServiceServer
	records []*adminpb.Record // in the order in which they are shown, the oldest first
	head    int64
	seal    string
	grow    func(*ledger) // before each answer
}

// newLedger has n records, sealed as they should be.
func newLedger(n int64) *ledger {
	l := &ledger{}
	for range n {
		l.add()
	}
	return l
}

func (l *ledger) add() {
	r := rollout.Record{Number: l.head + 1, Time: time.UnixMicro(l.head), Action: "apply", Message: fmt.Sprint("message ", l.head+1)}
	seal := r.SealAfter(l.seal)
	l.records = append(l.records, &adminpb.Record{Number: r.Number, Time: timestamppb.New(r.Time), Action: "apply", Message: r.Message, Seal: seal})
	l.head, l.seal = r.Number, seal
}

func (l *ledger) ListAudit(_ context.Context, req *adminpb.ListAuditRequest) (*adminpb.ListAuditResponse, error) {
	resp := &adminpb.ListAuditResponse{HeadNumber: l.head, HeadSeal: l.seal}
	if l.grow != nil {
		l.grow(l) // between the two reads of the answer
	}
	for _, r := range slices.Backward(l.records) {
		if (req.GetBefore() == 0 || r.GetNumber() < req.GetBefore()) && len(resp.Records) < int(req.GetLimit()) {
			resp.Records = append(resp.Records, r)
		}
	}
	return resp, nil
}

func (l *ledger) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	adminpb.RegisterAdminServiceServer(server, l)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // ends with Stop
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return listener.Addr().String()
}

func TestVerifyFindsWhatWasChangedInTheDatabase(t *testing.T) {
	t.Parallel()
	const n = 2500 // more than two pages
	for _, c := range []struct {
		name   string
		change func(*ledger)
		want   string
	}{
		{"edited", func(l *ledger) { l.records[1199].Message = "innocent" }, "record 1200 is not what was written"},
		{"removed", func(l *ledger) { l.records = slices.Delete(l.records, 1199, 1200) }, "record 1201 follows record 1199: one is missing, or was moved"},
		{"inserted", func(l *ledger) {
			l.records = slices.Insert(l.records, 1199, &adminpb.Record{Action: "promote", Seal: strings.Repeat("0", 64)})
			for i, r := range l.records {
				r.Number = int64(i) + 1
			}
			l.head++
		}, "record 1200 is not what was written"},
		{"moved", func(l *ledger) {
			l.records[1199].Number, l.records[1200].Number = 1201, 1200
			l.records[1199], l.records[1200] = l.records[1200], l.records[1199]
		}, "record 1200 is not what was written"},
		{"tail cut off", func(l *ledger) { l.records = l.records[:2400] }, "record 2401 is missing: the control plane says that there are 2500"},
		{"page cut off", func(l *ledger) { l.records = l.records[:900] }, "record 901 is missing"},
		{"end set back", func(l *ledger) { l.head, l.seal = 2400, l.records[2399].Seal }, "record 2500 is there, but the control plane says that the trail ends with record 2400"},
		{"another end", func(l *ledger) { l.seal = strings.Repeat("0", 64) }, "and the control plane says that the trail ends with 0000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLedger(n)
			c.change(l)
			r := run(t.Context(), l.serve(t), "", "audit", "verify")
			if code, said := r.end(); code != 1 || !strings.Contains(said, c.want) {
				t.Errorf("exit code %d, %q; want 1 and %q", code, said, c.want)
			}
			if got := r.stdout.String(); got != "" {
				t.Errorf("standard output has %q", got)
			}
		})
	}
}

func TestVerifyFindsATrailThatWasSealedAnewByItsAnchor(t *testing.T) {
	t.Parallel()
	before := newLedger(20)
	anchor := fmt.Sprintf("10:%s", before.records[9].Seal)
	anew := &ledger{}
	for i := range 20 {
		anew.add()
		if i == 4 { // another record in its place, and all after it sealed to fit
			r := rollout.Record{Number: 5, Time: time.UnixMicro(4), Action: "apply", Message: "innocent"}
			last := anew.records[4]
			last.Message, last.Seal = r.Message, r.SealAfter(anew.records[3].Seal)
			anew.seal = last.Seal
		}
	}
	addr := anew.serve(t)
	if code, said := run(t.Context(), addr, "", "audit", "verify").end(); code != 0 {
		t.Fatalf("without the anchor: exit code %d, %q", code, said)
	}
	if code, said := run(t.Context(), addr, "", "audit", "verify", "--anchor", anchor).end(); code != 1 || !strings.Contains(said, "record 10 is not the one that was anchored") {
		t.Errorf("exit code %d, %q", code, said)
	}
}

func TestVerifyGoesOnWhileOthersWrite(t *testing.T) {
	t.Parallel()
	l := newLedger(1500)
	l.grow = func(l *ledger) {
		if len(l.records) < 1510 {
			l.add()
		}
	}
	r := run(t.Context(), l.serve(t), "", "audit", "verify")
	if code, said := r.end(); code != 0 || !strings.HasPrefix(r.stdout.String(), "1510 records, head 1510:") {
		t.Errorf("exit code %d, %q, %q", code, r.stdout.String(), said)
	}
}
