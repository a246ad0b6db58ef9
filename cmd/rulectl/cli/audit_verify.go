package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules/rollout"
)

func (a *app) auditExportCommand() *cobra.Command {
	format := "jsonl"
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the whole audit trail, oldest record first",
		Long: "Audit export writes one JSON object a line, with everything that is sealed: `audit verify --file` checks it without\n" +
			"a control plane.",
		Example: "  rulectl audit export > audit.jsonl\n  rulectl audit verify --file audit.jsonl",
		Args:    cobra.NoArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			if format != "jsonl" {
				return usagef("%q is not known: an export is jsonl", format)
			}
			return a.exportAudit(ctx)
		}),
	}
	cmd.Flags().StringVarP(&format, "output", "o", format, "jsonl: a JSON object a line")
	return cmd
}

func (a *app) exportAudit(ctx context.Context) error {
	client, closeConn, err := a.connect()
	if err != nil {
		return err
	}
	defer closeConn()
	t := trail{a, client}
	at, err := t.end(ctx)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(raw(a.io.Out))
	written := 0
	// Whatever there is, also behind the end that the control plane tells of: verify is to find it.
	err = t.walk(ctx, 1, max(at.head.Records, at.newest), func(r *rollout.Record) error {
		written++
		return a.printLine(w, r.Line())
	})
	if err := firstOf(err, w.Flush()); err != nil {
		return err
	}
	a.tell("%s; check them with: rulectl audit verify --file FILE", count(written, "record"))
	return nil
}

func (a *app) auditVerifyCommand() *cobra.Command {
	var file, anchor string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that the audit trail is what was written",
		Long: "Each record is sealed with the one before it. Audit verify reads them all and seals them again, here, so that the\n" +
			"control plane need not be believed: a record that was edited, removed, inserted or moved is found (exit 1).\n\n" +
			"Whoever can write the database could seal everything anew. So keep the head it prints, NUMBER:SEAL, somewhere\n" +
			"else, and give it back with --anchor: every record up to it is then what it was.",
		Example: "  rulectl audit verify\n  rulectl audit verify --anchor 4711:9f3a…\n  rulectl audit verify --file audit.jsonl",
		Args:    cobra.NoArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			v, err := newVerification(anchor)
			if err != nil {
				return err
			}
			if file != "" {
				err = a.verifyFile(file, v)
			} else {
				err = a.verifyServer(ctx, v)
			}
			return a.reportVerification(v, err)
		}),
	}
	cmd.Flags().StringVar(&file, "file", "", "check an export in place of the control plane; - for standard input")
	cmd.Flags().StringVar(&anchor, "anchor", "", "head that was printed before, NUMBER:SEAL, which must be part of the trail")
	return cmd
}

// verification seals records again, one after the other.
type verification struct {
	rollout.Chain
	anchor rollout.Chain // no record: there is none
}

// brokenError says what is wrong with the trail itself.
type brokenError struct{ error }

func brokenf(format string, args ...any) error { return brokenError{fmt.Errorf(format, args...)} }

func newVerification(anchor string) (*verification, error) {
	v := &verification{}
	if anchor == "" {
		return v, nil
	}
	text, seal, _ := strings.Cut(anchor, ":")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || seal == "" {
		return nil, usagef("--anchor %q is not NUMBER:SEAL, as verify prints it", anchor)
	}
	v.anchor = rollout.Chain{Records: n, Seal: strings.ToLower(seal)}
	return v, nil
}

func (v *verification) add(r *rollout.Record) error {
	if err := v.Add(r); err != nil {
		return brokenError{err}
	}
	if v.Records == v.anchor.Records && v.Seal != v.anchor.Seal {
		return brokenf("record %d is not the one that was anchored: its seal is %s, and the anchor's %s: everything was sealed anew, "+
			"from it or from a record before it on", v.Records, v.Seal, v.anchor.Seal)
	}
	return nil
}

// finish checks that the anchor was there at all.
func (v *verification) finish() error {
	if v.Records < v.anchor.Records {
		return brokenf("record %d, the anchored one, is not there: the trail ends with record %d", v.anchor.Records, v.Records)
	}
	return nil
}

// verifyServer goes on until the end that the control plane tells of covers every record it has shown: others go on
// writing meanwhile, and an end that was set back must not pass for that.
func (a *app) verifyServer(ctx context.Context, v *verification) error {
	client, closeConn, err := a.connect()
	if err != nil {
		return err
	}
	defer closeConn()
	t := trail{a, client}
	for shown := int64(0); ; {
		at, err := t.end(ctx)
		if err != nil {
			return err
		}
		if at.head.Records < shown {
			return brokenf("record %d is there, but the control plane says that the trail ends with record %d: its end was set back", shown, at.head.Records)
		}
		if err := t.walk(ctx, v.Records+1, at.head.Records, v.add); err != nil {
			return err
		}
		switch {
		case v.Records < at.head.Records:
			return brokenf("record %d is missing: the control plane says that there are %d", v.Records+1, at.head.Records)
		case v.Seal != at.head.Seal:
			return brokenf("record %d has the seal %s, and the control plane says that the trail ends with %s", v.Records, v.Seal, at.head.Seal)
		case at.newest <= at.head.Records:
			return v.finish()
		}
		shown = at.newest
	}
}

func (a *app) verifyFile(name string, v *verification) error {
	in := a.io.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return fileError(err)
		}
		defer f.Close()
		in = f
	}
	d := json.NewDecoder(bufio.NewReader(in))
	for {
		var item rollout.RecordLine
		err := d.Decode(&item)
		if errors.Is(err, io.EOF) {
			return v.finish()
		}
		var r *rollout.Record
		if err == nil {
			r, err = item.Record()
		}
		if err != nil {
			return brokenf("after record %d comes what is no record: %w", v.Records, err)
		}
		if err := v.add(r); err != nil {
			return err
		}
	}
}

type verificationJSON struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Intact     bool   `json:"intact"`
	Records    int64  `json:"records"` // that are in order
	Head       string `json:"head"`    // NUMBER:SEAL of the last of them; "" for none
	Problem    string `json:"problem,omitempty"`
}

func (a *app) reportVerification(v *verification, err error) error {
	var broken brokenError
	if err != nil && !errors.As(err, &broken) {
		return err
	}
	head := ""
	if v.Records > 0 {
		head = fmt.Sprintf("%d:%s", v.Records, v.Seal)
	}
	result := verificationJSON{APIVersion: apiVersion, Kind: "AuditVerification", Intact: err == nil, Records: v.Records, Head: head}
	if err != nil {
		result.Problem = clean(err.Error())
		a.complain("the audit trail is not what was written: %s", err)
		a.advise(fmt.Sprintf("%s before it are in order; keep the database as it is, and compare it with a backup and with exports", count(int(v.Records), "record")))
	}
	switch {
	case a.structured():
		if err := a.printData(result); err != nil {
			return err
		}
	case err != nil:
	case head == "":
		fmt.Fprintln(a.io.Out, "0 records")
	default:
		fmt.Fprintf(a.io.Out, "%s, head %s\n", count(int(v.Records), "record"), head)
		a.tell("✔ every record is what was written; keep the head elsewhere, for: rulectl audit verify --anchor")
	}
	if err != nil {
		return explained{exitFailed}
	}
	return nil
}
