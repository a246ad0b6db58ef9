package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/controlplane/app"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/storage/postgres"
)

// withService runs do on the database itself, past the doors of a control plane: whoever reaches the database may. What
// it changes is in the audit trail, in the name of the operating system's user.
func (s *settings) withService(c *cobra.Command, do func(context.Context, *rollout.Service, rollout.Why) error) (err error) {
	if s.environment != nil {
		return fmt.Errorf("environment: %w", s.environment)
	}
	config := app.DefaultConfig() // what is said of ports is not about this
	config.Database = s.Database
	if err := config.Validate(); err != nil {
		return err
	}
	store, err := app.OpenStore(c.Context(), config, slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	why := rollout.Why{Who: access.Local(app.OperatingSystemUser()), Message: "at the database, with " + c.CommandPath()}
	return do(c.Context(), rollout.NewService(store, time.Now), why)
}

func migrateCommand(config *settings) *cobra.Command {
	var programRole string
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the schema of the database up to date, as its owner",
		Long: "Migrate brings the schema of a Postgres database up to date as the role that --database-url names, which owns\n" +
			"it then, and gives another role what the control plane needs to run: as that role it can add to the history and\n" +
			"the audit trail, and change or remove nothing of them.\n\n" +
			"A control plane that runs as the owner, or on SQLite, does this itself when it starts.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if config.environment != nil {
				return fmt.Errorf("environment: %w", config.environment)
			}
			if !config.IsPostgres() {
				return errors.New("--database-url: is no postgres:// URL, and SQLite knows no roles: the control plane migrates it when it starts")
			}
			if err := postgres.Migrate(c.Context(), config.Database, programRole); err != nil {
				return err
			}
			fmt.Fprintln(c.ErrOrStderr(), "the schema is up to date")
			return nil
		},
	}
	config.databaseFlag(c)
	c.Flags().StringVar(&programRole, "program-role", "", "role that the control plane runs as")
	return c
}

func renewLineageCommand(config *settings) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use:   "renew-lineage",
		Short: "Give the history another identity, after the database was restored from a backup or copied",
		Long: "Renew-lineage says that this database does not continue what sidecars may hold: it was restored to an earlier\n" +
			"state, or is a copy. Sidecars keep their rules in force, and take none from here until an admin lets them follow\n" +
			"with rulectl sidecar adopt. Stop the control planes of the database before.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !yes {
				return errors.New("no sidecar takes a change after this until an admin has let it follow; --yes if that is meant")
			}
			return config.withService(c, func(ctx context.Context, service *rollout.Service, why rollout.Why) error {
				lineage, err := service.RenewLineage(ctx, why)
				if err != nil {
					return err
				}
				fmt.Fprintln(c.OutOrStdout(), lineage)
				return nil
			})
		},
	}
	config.databaseFlag(c)
	c.Flags().BoolVar(&yes, "yes", false, "do it")
	return c
}
