package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/agent/install"
	"github.com/cofferdam/cofferdam/internal/boot"
	"github.com/cofferdam/cofferdam/internal/egress/keeper"
	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox/frozen"
	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor"
	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/worker"
)

// flags are the program's arguments.
type flags struct {
	data, server, tokenFile, runsc, guest, images string
	registry                                      string
	debug                                         bool
}

func parse(args []string, stderr io.Writer) (flags, error) {
	var f flags
	set := flag.NewFlagSet("cofferdam-worker", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&f.data, "data", "/var/lib/cofferdam", "data `folder` of the installation")
	set.StringVar(&f.server, "server", "", "`URL` of cofferdamd")
	set.StringVar(&f.tokenFile, "token-file", "", "`file` with the worker's token; read again at each connection")
	set.StringVar(&f.runsc, "runsc", "", "`path` of the runsc program")
	set.StringVar(&f.guest, "guest", "", "`path` of the cofferdam-guest program")
	set.StringVar(&f.images, "images", "", "`folder` of root images, which workers may share; off: none are made (default: worker/images in the data folder)")
	set.StringVar(&f.registry, "agent-registry", install.Registry, "`URL` of the npm registry that agents are installed from")
	set.BoolVar(&f.debug, "debug", false, "log each request that fails")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, task.Fail(task.InputInvalid, fmt.Sprintf("unexpected argument %q", set.Arg(0)), nil)
	}
	for _, required := range []struct{ name, value string }{
		{"server", f.server}, {"token-file", f.tokenFile}, {"runsc", f.runsc}, {"guest", f.guest},
	} {
		if required.value == "" {
			return f, task.Fail(task.InputInvalid, "--"+required.name+" is required", nil)
		}
	}
	return f, nil
}

// The pace and the bounds of the program.
const (
	reconcilePace = 5 * time.Second
	effectsEnd    = 5 * time.Second  // how long effects under way may take when the worker is asked to end
	drainLimit    = 90 * time.Second // and destroying every sandbox
)

// Run is the program: it keeps sandboxes until ctx ends.
func Run(ctx context.Context, args []string, stderr io.Writer) (err error) {
	f, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return task.Fail(task.InputInvalid, "must run as root, since sandboxes need namespaces, mounts and cgroups; start it with sudo or as a system service", nil)
	}
	level := slog.LevelInfo
	if f.debug {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	// The keeper's and the driver's files must not be opened beside another worker.
	lock, err := boot.Claim(filepath.Join(f.data, "worker", "epochs"))
	if err != nil {
		return task.Fail(task.InfraStorage, err.Error(), nil)
	}
	defer lock.Close()
	m, err := open(f, log)
	if err != nil {
		return err
	}
	defer func() {
		m.shelf.Close()
		err = errors.Join(err, m.driver.Close())
	}()
	return m.serve(ctx)
}

// machine is the worker while it is put together.
type machine struct {
	flags  flags
	dir    string
	boot   string
	log    *slog.Logger
	keeper *keeper.Keeper
	driver *gvisor.Driver
	shelf  *install.Shelf
	door   *worker.Door
}

// open makes the parts.
func open(f flags, log *slog.Logger) (*machine, error) {
	dir, err := filepath.Abs(filepath.Join(f.data, "worker"))
	if err != nil {
		return nil, err
	}
	m := &machine{flags: f, dir: dir, boot: boot.NewID(), log: log}
	gateway := filepath.Join(f.data, "gateway")
	// The driver comes after its network and is what the network asks when a
	// device has to be opened again, which is not before serve.
	m.keeper, err = keeper.New(keeper.Options{
		Socket: filepath.Join(gateway, "gateway.sock"), State: filepath.Join(dir, "network"), Records: filepath.Join(gateway, "egress"),
		Log: log, Reopen: func(id string) (*os.File, error) { return m.driver.ReopenTAP(id) },
	})
	if err != nil {
		return nil, err
	}
	if m.shelf, err = install.Open(install.Options{Dir: filepath.Join(dir, "agents"), Registry: f.registry, Log: log}); err != nil {
		return nil, err
	}
	kept, err := frozen.Open(filepath.Join(dir, "frozen"))
	if err != nil {
		return nil, err
	}
	config := gvisor.Config{Kept: kept.Has, Agents: m.shelf.Dir, Dir: dir, Runsc: f.runsc, Guest: f.guest, Images: imagesDir(f.images, dir), Network: m.keeper, Logger: log, HostPath: os.Getenv("PATH")}
	if m.driver, err = gvisor.New(config); err != nil {
		return nil, err
	}
	id, err := machineID(filepath.Join(dir, "id"))
	if err != nil {
		return nil, errors.Join(err, m.driver.Close())
	}
	m.door = worker.New(worker.Options{
		ID: id, Boot: m.boot, Version: version, Driver: m.driver, Egress: m.keeper,
		EpochDir: filepath.Join(dir, "epochs"),
		Machine:  func() link.Machine { return facts(dir) },
		Checks: func(ctx context.Context) []link.Check {
			return append(append(checks(ctx, config), imageChecks(m.driver)...), gapsCheck())
		},
		Ledger: func() []link.OpenRecord { return mirror(m.driver) },
		Agents: agents{m.shelf, m.driver},
		Frozen: kept,
		Log:    log,
	})
	return m, nil
}

// serve adopts, then connects until ctx ends. Adoption comes first: a sandbox that
// is not known yet must not be called lost.
func (m *machine) serve(ctx context.Context) error {
	if err := m.driver.Adopt(ctx); err != nil {
		m.log.Error("not everything of the earlier worker could be taken over or cleaned up; see cofferdam doctor", "error", err)
	}
	// The way out outlives ctx: destroying sandboxes at the end needs it.
	keeping, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.keeper.Run(keeping); err != nil {
			m.log.Error("the gateway's keeper ended", "error", err)
		}
	})
	defer running.Wait()
	defer end()

	var once sync.Once
	var announced error
	work, stop := context.WithCancel(ctx)
	defer stop()
	running.Go(func() { m.door.Keep(work, reconcilePace) })
	running.Go(func() { m.driver.KeepImages(work) })
	l := &link.Worker{
		Server: m.flags.server, Token: m.token, Handler: m.door, Log: m.log,
		Tried: func(error) {
			once.Do(func() {
				if announced = boot.Announce(m.dir, "cofferdam-worker", m.boot, ""); announced != nil {
					stop()
					return
				}
				m.log.Info("ready", "boot", m.boot, "server", m.flags.server, "version", version)
			})
		},
	}
	l.Keep(work)
	stop()
	return errors.Join(announced, m.finish())
}

// finish ends what is under way and, when the installation is being taken down,
// every sandbox. Otherwise they run on and the next worker adopts them.
func (m *machine) finish() error {
	ctx, cancel := context.WithTimeout(context.Background(), effectsEnd)
	defer cancel()
	m.door.Wait(ctx)
	marker := filepath.Join(m.dir, "stop")
	if _, err := os.Lstat(marker); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	m.log.Info("destroying every sandbox, as the installation is being taken down")
	ctx, cancel = context.WithTimeout(context.Background(), drainLimit)
	defer cancel()
	return errors.Join(m.door.DestroyAll(ctx), os.Remove(marker))
}

func (m *machine) token() (string, error) {
	text, err := os.ReadFile(m.flags.tokenFile)
	return strings.TrimSpace(string(text)), err
}
