package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print this program's version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			version, commit := "unknown", ""
			if info, ok := debug.ReadBuildInfo(); ok {
				version = info.Main.Version
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						commit = s.Value
					}
				}
			}
			if a.json {
				return printJSON(a.Out, map[string]string{"version": version, "commit": commit, "go": runtime.Version()})
			}
			_, err := fmt.Fprintf(a.Out, "cofferdam %s %s %s\n", version, commit, runtime.Version())
			return err
		},
	}
}
