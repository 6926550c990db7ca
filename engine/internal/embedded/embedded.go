// Package embedded runs the Temporal server inside one process, on one SQLite
// file, reachable on the loopback interface only and only with a token.
//
// Words. The folder is DATA/engine: it holds the database file, its VERSION,
// the token, the remembered port and boot.json. The front is the one listener
// that clients use; the other listeners are the server's own parts talking to
// each other, and demand a certificate that exists in this process's memory
// only.
//
// Not promised: that an engine file outlives a change of the server's version.
// Temporal has no migrations for SQLite, so a file of another version, or one
// that is damaged, is moved aside and a fresh one is made; whoever keeps the
// record of open work starts it again. Nor are two engines on one folder
// possible: the folder is locked.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
)

// Namespace is the one namespace there is.
const Namespace = "cofferdam"

// Retention is how long a closed workflow's history is kept.
const Retention = 30 * 24 * time.Hour

// The server keeps the state of a workflow in memory, about 20 KiB of ours, for
// an hour after its end. These two bound what a busy hour leaves (measured by
// TestMemoryOfEndedWorkflows); a state that is gone is read from the file again.
const (
	cachedWorkflows = 100
	cachedFor       = 5 * time.Minute
)

// Options say where the engine lives. Folder, Logger and Fatal are required.
type Options struct {
	Folder string // DATA/engine
	Listen string // loopback address of the front; port 0: the remembered one if free
	Boot   string // the boot id written to boot.json
	Logger *slog.Logger
	Fatal  func() // ends the process; the server calls it where it can't go on
}

// Engine is a running server.
type Engine struct {
	Address string // of the front
	server  temporal.Server
	lock    *os.File
	log     *slog.Logger
}

// Start locks the folder, makes or checks the database, starts the server and
// returns once it truly serves.
func Start(ctx context.Context, o Options) (*Engine, error) {
	if err := os.MkdirAll(o.Folder, 0o700); err != nil {
		return nil, fmt.Errorf("engine folder: %w", err)
	}
	lock, err := lockFolder(o.Folder)
	if err != nil {
		return nil, err
	}
	engine, err := start(ctx, o, lock)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return engine, nil
}

func start(ctx context.Context, o Options, lock *os.File) (*Engine, error) {
	token, err := loadToken(filepath.Join(o.Folder, "token"))
	if err != nil {
		return nil, err
	}
	if err := prepareDatabase(ctx, o.Folder, o.Logger); err != nil {
		return nil, err
	}
	ports, err := choosePorts(o.Folder, o.Listen)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		Address: net.JoinHostPort(loopback, strconv.Itoa(ports.front)),
		lock:    lock, log: o.Logger,
	}
	if e.server, err = newServer(o, ports, token); err != nil {
		return nil, fmt.Errorf("engine server: %w", err)
	}
	if err := e.server.Start(); err != nil {
		return nil, fmt.Errorf("engine server: %w", err)
	}
	if err := waitServing(ctx, e.Address, token); err != nil {
		return nil, errors.Join(fmt.Errorf("engine server: %w", err), e.server.Stop())
	}
	if err := writeBoot(o, e.Address, ports.addresses()); err != nil {
		return nil, errors.Join(err, e.server.Stop())
	}
	return e, nil
}

// Stop ends the server and unlocks the folder.
func (e *Engine) Stop() error {
	return errors.Join(e.server.Stop(), e.lock.Close())
}

// newServer builds the server of all four services and its inner front.
func newServer(o Options, p ports, token string) (temporal.Server, error) {
	certificates, err := newInnerTLS()
	if err != nil {
		return nil, err
	}
	cfg := serverConfig(filepath.Join(o.Folder, databaseName), p)
	hosts := map[primitives.ServiceName]static.Hosts{}
	names := make([]string, 0, len(cfg.Services))
	for name, service := range cfg.Services {
		names = append(names, name)
		at := net.JoinHostPort(loopback, strconv.Itoa(service.RPC.GRPCPort))
		hosts[primitives.ServiceName(name)] = static.SingleLocalHost(at)
	}
	return temporal.NewServer(
		temporal.WithConfig(cfg),
		temporal.ForServices(names),
		temporal.WithStaticHosts(hosts),
		temporal.WithLogger(newLogger(o.Logger, o.Fatal)),
		temporal.WithTLSConfigFactory(certificates),
		temporal.WithAuthorizer(newAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return newClaimMapper(token) }),
		temporal.WithDynamicConfigClient(dynamicConfig()),
	)
}

// dynamicConfig lifts the throttles that are meant for shared clusters: with
// the default of 20 polls a second and shard, each workflow task of a small
// engine waits 50 ms. The short long-poll bounds a lost notification.
func dynamicConfig() dynamicconfig.StaticClient {
	return dynamicconfig.StaticClient{
		dynamicconfig.TransferProcessorMaxPollRPS.Key():       1000,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():          1000,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key():     1000,
		dynamicconfig.HistoryLongPollExpirationInterval.Key(): 2 * time.Second,
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key():      cachedWorkflows,
		dynamicconfig.HistoryCacheTTL.Key():                   cachedFor,
		dynamicconfig.HistoryCacheBackgroundEvict.Key(): dynamicconfig.CacheBackgroundEvictSettings{
			Enabled: true, LoopInterval: 30 * time.Second, MaxEntryPerCall: cachedWorkflows,
		},
	}
}
