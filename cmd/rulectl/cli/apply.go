package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
	"github.com/headgate/headgate/web/api/adminpb"
)

// maxTotal leaves room in a request for names and framing.
const maxTotal = adminpb.MaxRequestBytes - 1<<20

func (a *app) applyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "Make the specs of rule files the newest of their rules",
		Long: "Apply sends rule files as they are written; the control plane validates and stores them, all or nothing.\n" +
			"A new or changed rule starts in shadow: it refuses nobody until it is promoted. Rules that the files do not\n" +
			"name stay as they are.",
		Example: "  rulectl apply -f rules/ -m \"pro plan to 600/min\" --wait",
		GroupID: groupChange,
		Args:    onlyFiles,
		RunE:    a.run(func(ctx context.Context, _ []string) error { return a.apply(ctx) }),
	}
	a.filesFlag(cmd)
	a.changeFlags(cmd)
	return cmd
}

func (a *app) apply(ctx context.Context) error {
	files, err := a.readFiles()
	if err != nil {
		return err
	}
	req := &adminpb.ApplyRequest{Message: a.message, Files: make([]*adminpb.File, len(files))}
	total := 0
	for i, f := range files {
		req.Files[i] = &adminpb.File{Name: f.Name, Content: f.Content}
		total += len(f.Content)
	}
	if total > maxTotal {
		return fmt.Errorf("the files have %d MiB together; at most %d MiB are taken at once: name fewer", total>>20, maxTotal>>20)
	}
	return a.change(ctx, change{next: nextStep, do: func(ctx context.Context, client adminpb.AdminServiceClient) ([]*adminpb.Outcome, error) {
		resp, err := client.Apply(ctx, req)
		a.showProblems(err, files)
		return resp.GetOutcomes(), err
	}})
}

// showProblems prints what the server found wrong with the files, beside the lines, which are here.
func (a *app) showProblems(err error, files []rulefile.File) {
	var invalid *rules.ValidationError
	if errors.As(err, &invalid) {
		printProblems(a.io.Err, invalid.Problems, files)
	}
}
