package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

type versionJSON struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Version    string `json:"version"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the version of rulectl",
		GroupID: groupSelf,
		Args:    cobra.NoArgs,
		RunE: a.run(func(context.Context, []string) error {
			v := versionJSON{apiVersion, "Version", programVersion(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if a.structured() {
				return a.printData(v)
			}
			_, err := fmt.Fprintf(a.io.Out, "rulectl %s (%s, %s)\n", v.Version, v.Go, v.Platform)
			return err
		}),
	}
}

func programVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
