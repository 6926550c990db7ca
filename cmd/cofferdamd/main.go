// Command cofferdamd is the control plane of an installation: the API, the
// database, policy, the tasks' stages and the audit. It runs as a service user,
// holds the keys, and meets nothing that a sandbox shaped but through parsers.
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
	fmt.Fprintln(os.Stderr, "cofferdamd:", err)
	stop()
	if failure, ok := errors.AsType[*task.Failure](err); ok {
		os.Exit(failure.Reason.ExitCode())
	}
	os.Exit(1)
}
