// Command cofferdam is the command line: it gives work to an installation,
// looks at it, proves what happened, and runs an installation on this machine.
package main

import (
	"context"
	"os"

	"github.com/cofferdam/cofferdam/internal/cli"
)

func main() {
	err := Run(context.Background(), os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	os.Exit(cli.ExitCode(err))
}
