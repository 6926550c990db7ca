package main

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/cli"
)

// version is set by the build.
var version = "unknown"

// Run carries out one command line. What went wrong has been told when it
// returns; the error is for the exit code.
func Run(ctx context.Context, args []string, stdio cli.Stdio) error {
	return cli.Execute(ctx, version, args, stdio)
}
