package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print this program's version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return printJSON(a.Out, map[string]string{"version": a.version, "go": runtime.Version()})
			}
			_, err := fmt.Fprintf(a.Out, "cofferdam %s, %s\n", a.version, runtime.Version())
			return err
		},
	}
}
