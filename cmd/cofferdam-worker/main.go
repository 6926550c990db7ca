// Command cofferdam-worker makes and keeps the sandboxes of one machine. It runs
// as root, dials out to cofferdamd and has no port of its own. Its sandboxes
// outlive it: the next worker over the same data folder adopts them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/cofferdam/cofferdam/internal/task"
)

// version is set by the linker.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := Run(ctx, os.Args[1:], os.Stderr)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, "cofferdam-worker:", err)
	stop()
	if failure, ok := errors.AsType[*task.Failure](err); ok {
		os.Exit(failure.Reason.ExitCode())
	}
	os.Exit(1)
}
