// Command cofferdam-gateway is the only way out of a machine's sandboxes by
// network. It runs as an unprivileged user and gets the sandboxes' network
// devices from the worker.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := Run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "cofferdam-gateway:", err)
		stop()
		os.Exit(1)
	}
}
