package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
	"github.com/headgate/headgate/web/api/adminpb"
)

// maxTotal leaves room in a request for names and framing.
const maxTotal = adminpb.MaxRequestBytes - 1<<20

// The values of --stage.
const (
	stageShadow  = "shadow"
	stageEnforce = "enforce"
)

type applyFlags struct {
	replace, again, prune bool
	stage                 string
	dryRun                dryRun
}

func (a *app) applyCommand() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIR|-",
		Short: "Make the specs of rule files the newest of their rules",
		Long: "Apply sends rule files as they are written; the control plane validates and stores them, all or nothing.\n" +
			"A new or changed rule starts in shadow: it refuses nobody until it is promoted. Rules that the files do not\n" +
			"name stay as they are.\n\n" +
			"Some things take effect at once, without shadow: exemptions, another shard, rules taken out by --prune, and\n" +
			"everything with --stage enforce. They are shown before they happen and asked for at a terminal; elsewhere they\n" +
			"need --yes (exit 7 otherwise). So it is with a limit that becomes ten times larger or smaller.",
		Example: "  rulectl apply -f rules/ -m \"pro plan to 600/min\" --wait\n" +
			"  rulectl apply -f rules/ --dry-run\n" +
			"  rulectl apply -f rules/ --prune --yes -m \"rules are what is in git\"",
		GroupID: groupChange,
		Args:    onlyFiles,
		RunE:    a.run(func(ctx context.Context, _ []string) error { return a.apply(ctx, f) }),
	}
	a.filesFlag(cmd)
	a.changeFlags(cmd)
	a.yesFlag(cmd, "do what takes effect at once, and take limits that change tenfold, without asking")
	f.register(cmd)
	cmd.Flags().VarPF(&f.dryRun, "dry-run", "", "only show what would be done, also --dry-run=server; diff says it in more words").NoOptDefVal = "server"
	return cmd
}

// dryRun is the value of --dry-run, in the words of kubectl.
type dryRun bool

func (d *dryRun) String() string { return strconv.FormatBool(bool(*d)) }

// Type has the help show it as a flag that needs no value.
func (d *dryRun) Type() string { return "bool" }

// Set reads the flag.
func (d *dryRun) Set(value string) error {
	switch value {
	case "server", "true":
		*d = true
	case "none", "false":
		*d = false
	case "client":
		return errors.New("files are checked without a control plane by: rulectl validate -f FILE")
	default:
		return errors.New("use server or none")
	}
	return nil
}

// register registers the flags that diff has too.
func (f *applyFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.stage, "stage", stageShadow, "shadow, or enforce: in force for everybody at once")
	cmd.Flags().BoolVar(&f.replace, "replace", false, "replace candidates that already bind for some keys; the new ones start in shadow")
	cmd.Flags().BoolVar(&f.again, "again", false, "take specs that were rolled back from")
	cmd.Flags().BoolVar(&f.prune, "prune", false, "delete the rules, exemptions and the shard of the files' domains that the files do not name")
}

// applyRequest reads the files, and returns them with the request that applies them.
func (a *app) applyRequest(f applyFlags) ([]rulefile.File, *adminpb.ApplyRequest, error) {
	if f.stage != stageShadow && f.stage != stageEnforce {
		return nil, nil, usagef("--stage %q is not known: use shadow or enforce; to bind for some keys, promote", f.stage)
	}
	files, err := a.readFiles()
	if err != nil {
		return nil, nil, err
	}
	req := &adminpb.ApplyRequest{
		Files: make([]*adminpb.File, len(files)), Why: a.why(), Replace: f.replace, Again: f.again, Prune: f.prune,
		Enforce: f.stage == stageEnforce, Confirmed: a.yes.given(),
	}
	total := 0
	for i, f := range files {
		req.Files[i] = &adminpb.File{Name: f.Name, Content: f.Content}
		total += len(f.Content)
	}
	if total > maxTotal {
		return nil, nil, fmt.Errorf("the files have %d MiB together; at most %d MiB are taken at once: name fewer", total>>20, maxTotal>>20)
	}
	return files, req, nil
}

func (a *app) apply(ctx context.Context, f applyFlags) error {
	files, req, err := a.applyRequest(f)
	if err != nil {
		return err
	}
	if f.dryRun {
		outcomes, err := a.dryRun(ctx, req)
		if err != nil {
			a.showProblems(err, files)
			return err
		}
		return a.showDryRun(outcomes)
	}
	if err := a.askFirst(ctx, req, files); err != nil {
		return err
	}
	return a.change(ctx, change{what: "apply " + names(fileNames(files)), next: nextStep, many: nextOfMany, do: func(ctx context.Context, client adminpb.AdminServiceClient) ([]*adminpb.Outcome, error) {
		outcomes, err := a.send(ctx, client, req)
		a.showProblems(err, files)
		return outcomes, err
	}})
}

// send applies the files, or only asks what would be done. It says which domains are new.
func (a *app) send(ctx context.Context, client adminpb.AdminServiceClient, req *adminpb.ApplyRequest) ([]*adminpb.Outcome, error) {
	before, unknown := client.ListDomains(ctx, &adminpb.ListDomainsRequest{})
	resp, err := client.Apply(ctx, req)
	if err == nil && unknown == nil {
		a.sayNew(before.GetDomains(), resp.GetOutcomes())
	}
	return resp.GetOutcomes(), err
}

// sayNew says which domains there have not been: a slip of the pen in a file's domain makes one, which no sidecar serves.
func (a *app) sayNew(before []*adminpb.Domain, outcomes []*adminpb.Outcome) {
	for _, o := range outcomes {
		is := func(d *adminpb.Domain) bool { return d.GetName() == o.GetDomain() }
		if len(o.GetSteps()) == 0 || slices.ContainsFunc(before, is) || slices.Contains(a.newDomains, o.GetDomain()) {
			continue
		}
		a.newDomains = append(a.newDomains, o.GetDomain())
		near := orDidYouMean(o.GetDomain(), before)
		switch {
		case near != "":
			a.warn("%s is a new domain%s", oneLine(o.GetDomain()), oneLine(near))
		case !a.structured():
			a.tell("%s is a new domain", oneLine(o.GetDomain()))
		}
	}
}

// orDidYouMean is "; did you mean public-api?", or "" where no domain's name is near.
func orDidYouMean(name string, domains []*adminpb.Domain) string {
	names := make([]string, len(domains))
	for i, d := range domains {
		names[i] = d.GetName()
	}
	if near := rulefile.Nearest(name, names); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	return ""
}

// atOnce reports whether something may take effect without shadow. Files that this program cannot read may be readable
// to a newer control plane.
func atOnce(req *adminpb.ApplyRequest, files []rulefile.File) bool {
	if req.GetPrune() || req.GetEnforce() {
		return true
	}
	sets, err := rulefile.DecodeAll(files)
	return err != nil || slices.ContainsFunc(sets, func(s rulefile.RuleSet) bool { return s.Shard != nil || len(s.Exempt) > 0 })
}

// askFirst shows what would be done, and asks: where some of it takes effect at once or changes a limit tenfold, and in a
// protected context always. A limit that changes tenfold is taken once somebody has said yes to it.
func (a *app) askFirst(ctx context.Context, req *adminpb.ApplyRequest, files []rulefile.File) error {
	if err := a.settle(); err != nil {
		return err
	}
	protected := a.context != nil && a.context.Protected && a.yes.name() == ""
	if !protected && (a.yes.given() || !a.io.Interactive && !atOnce(req, files)) {
		return nil
	}
	outcomes, err := a.dryRun(ctx, req)
	switch {
	case errors.Is(err, rules.ErrInvalid) || errors.Is(err, rules.ErrForbidden):
		return nil // the attempt is refused as well, and recorded
	case err != nil:
		return err
	}
	now, tenfold := toConfirm(outcomes, req.GetEnforce())
	if !a.io.Interactive {
		tenfold = nil // the control plane refuses it, and says the way
	}
	if len(now)+len(tenfold) == 0 && !protected {
		return nil
	}
	if a.io.Interactive {
		printOutcomes(a.io.Err, outcomes, "would be changed")
	} else if err := a.showDryRun(outcomes); err != nil {
		return err
	}
	var asked []string
	if len(now) > 0 {
		asked = append(asked, "change at once, without shadow: "+names(now))
	}
	if len(tenfold) > 0 {
		asked = append(asked, "change a limit ten times or more: "+names(tenfold))
	}
	if len(asked) == 0 {
		return a.allow(ctx, "apply "+names(fileNames(files)))
	}
	if err := a.confirm(ctx, strings.Join(asked, "; ")); err != nil {
		return err
	}
	req.Confirmed = req.Confirmed || len(tenfold) > 0
	return nil
}

// toConfirm are the rules and settings that change at once, and the rules with a limit that changes tenfold.
func toConfirm(outcomes []*adminpb.Outcome, enforce bool) (now, tenfold []string) {
	for _, o := range outcomes {
		for _, step := range o.GetSteps() {
			if enforce || ofSettings(step) || deletes(step) {
				now = append(now, step.GetRule())
			}
			if slices.ContainsFunc(step.GetWarnings(), func(w string) bool { return strings.Contains(w, rules.WarnTenfold) }) {
				tenfold = append(tenfold, step.GetRule())
			}
		}
	}
	return now, tenfold
}

func fileNames(files []rulefile.File) []string {
	list := make([]string, len(files))
	for i, f := range files {
		list[i] = f.Name
	}
	return list
}

// names lists the first few.
func names(list []string) string {
	const most = 5
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

// dryRun asks what would be done. It is no attempt: what would be refused leaves no record.
func (a *app) dryRun(ctx context.Context, req *adminpb.ApplyRequest) ([]*adminpb.Outcome, error) {
	dry := proto.CloneOf(req)
	dry.DryRun = true
	return ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) ([]*adminpb.Outcome, error) {
		return a.send(ctx, client, dry)
	})
}

func (a *app) showDryRun(outcomes []*adminpb.Outcome) error {
	if a.structured() {
		return printList(a, "ChangeList", changeItems(outcomes, nil))
	}
	return a.showOutcomes(outcomes)
}

// showProblems prints what the server found wrong with the files, beside the lines, which are here.
func (a *app) showProblems(err error, files []rulefile.File) {
	var invalid *rules.ValidationError
	if errors.As(err, &invalid) {
		printProblems(a.io.Err, invalid.Problems, files)
	}
}
