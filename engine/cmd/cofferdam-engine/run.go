package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/cofferdam/cofferdam/engine/internal/embedded"
)

// errUsage is the error of arguments that were explained on the terminal.
var errUsage = errors.New("usage")

// Run starts the engine of a data folder and returns after ctx is done and the
// server has stopped.
func Run(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("cofferdam-engine", flag.ContinueOnError)
	flags.SetOutput(stderr)
	data := flags.String("data", "/var/lib/cofferdam", "the installation's data folder; the engine lives in its folder `engine`")
	listen := flags.String("listen", "127.0.0.1:0", "loopback address of the front; port 0 takes the port of the last start when it is free")
	verbose := flags.Bool("verbose", false, "log the server's insides as well")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "cofferdam-engine: unexpected argument %q\n", flags.Arg(0))
		return errUsage
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: level}))
	if os.Getenv("GOGC") == "" {
		// Most of what the server makes lives for one request. With half the usual
		// room between collections it stays near what it keeps.
		debug.SetGCPercent(50)
	}
	boot := embedded.NewBoot()
	engine, err := embedded.Start(ctx, embedded.Options{
		Folder: filepath.Join(*data, "engine"),
		Listen: *listen,
		Boot:   boot,
		Logger: log,
		Fatal:  func() { os.Exit(1) },
	})
	if err != nil {
		return err
	}
	log.Info("engine serves", "address", engine.Address, "boot", boot)
	<-ctx.Done()
	log.Info("engine stops")
	return engine.Stop()
}
