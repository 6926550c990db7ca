package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/cofferdam/cofferdam/internal/guest/agent"
)

// version is set when linking.
var version = "unknown"

const (
	gcPercent   = 50       // an idle sandbox is mostly the guest's heap
	memoryLimit = 48 << 20 // collect harder before this; the buffers need about a tenth
)

// Run serves the worker until the channel ends, which ends the sandbox.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("cofferdam-guest", flag.ContinueOnError)
	flags.SetOutput(stderr)
	show := flags.Bool("version", false, "print the version and exit")
	var opts agent.Options
	flags.StringVar(&opts.Root, "root", "", "put before the paths that are set up (for tests)")
	flags.StringVar(&opts.Workspace, "workspace", "", "default folder of commands (default /workspace)")
	flags.BoolVar(&opts.SameUser, "same-user", false, "run commands as the guest's own user (for tests)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *show {
		_, err := fmt.Fprintln(stdout, "cofferdam-guest", version)
		return err
	}
	if flags.NArg() > 0 {
		return errors.New("there are no arguments")
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	a, err := agent.New(opts)
	if err != nil {
		return err
	}
	return a.Serve(ctx, agent.Descriptor(0), agent.Descriptor(1))
}
