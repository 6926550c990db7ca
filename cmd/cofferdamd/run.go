package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/approval"
	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/boot"
	"github.com/cofferdam/cofferdam/internal/budget"
	"github.com/cofferdam/cofferdam/internal/budget/price"
	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/credential/login"
	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/identity/issuer"
	"github.com/cofferdam/cofferdam/internal/output"
	patchflags "github.com/cofferdam/cofferdam/internal/output/flags"
	"github.com/cofferdam/cofferdam/internal/output/flags/secrets"
	"github.com/cofferdam/cofferdam/internal/output/retention"
	"github.com/cofferdam/cofferdam/internal/policy"
	"github.com/cofferdam/cofferdam/internal/server"
	"github.com/cofferdam/cofferdam/internal/server/credentials"
	"github.com/cofferdam/cofferdam/internal/server/incident"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	serverpolicies "github.com/cofferdam/cofferdam/internal/server/policies"
	"github.com/cofferdam/cofferdam/internal/server/runidentity"
	"github.com/cofferdam/cofferdam/internal/stage/steps"
	"github.com/cofferdam/cofferdam/internal/stage/steps/purse"
	"github.com/cofferdam/cofferdam/internal/stage/temporal"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/store/workers"
	"github.com/cofferdam/cofferdam/internal/task"
)

// flags are the program's arguments.
type flags struct {
	data      string
	listen    string
	public    bool
	hosts     string
	operator  string
	temporal  string
	namespace string
	dns       string
	roots     string
	issuer    string
	prices    string

	publishDelay time.Duration

	keepTasks, keepOutputs time.Duration
}

func parse(args []string, stderr io.Writer) (flags, error) {
	var f flags
	set := flag.NewFlagSet("cofferdamd", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&f.data, "data", "/var/lib/cofferdam", "data `folder` of the installation")
	set.StringVar(&f.listen, "listen", "127.0.0.1:7070", "`host:port` of the API")
	set.BoolVar(&f.public, "listen-public", false, "allow --listen on an address other than the loopback; put TLS in front")
	set.StringVar(&f.hosts, "hosts", "", "further `names`, comma-separated, that clients may call this server by")
	set.StringVar(&f.operator, "operator-policy", "", "`file` with the operator's policy layer")
	set.StringVar(&f.prices, "prices", "", "`file` with what models cost, in place of the program's own prices")
	set.StringVar(&f.dns, "dns", "", "`host:port` of the name server for names outside (default: as this machine is set up)")
	set.StringVar(&f.roots, "roots", "", "PEM `file` of authorities that servers outside are verified under, beside the system's")
	set.StringVar(&f.issuer, "issuer", "", "https `URL` of the issuer of the tokens that say who a run is (default: none are signed)")
	set.DurationVar(&f.publishDelay, "identity-publish-delay", 0, "how long a new key of theirs is published before it signs (default 1h)")
	set.StringVar(&f.temporal, "temporal-address", "", "`host:port` of an existing Temporal cluster instead of cofferdam-engine")
	set.StringVar(&f.namespace, "temporal-namespace", "", "`namespace` in that cluster")
	set.DurationVar(&f.keepTasks, "keep-tasks", 0, "how long tasks that have ended are kept, such as 720h (default 0: for ever)")
	set.DurationVar(&f.keepOutputs, "keep-outputs", 0, "how long the bytes of their outputs and logs are (default 0: as long as the task)")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if f.keepTasks < 0 || f.keepOutputs < 0 {
		return f, task.Fail(task.InputInvalid, "--keep-tasks and --keep-outputs: must not be negative", nil)
	}
	if set.NArg() > 0 {
		return f, task.Fail(task.InputInvalid, fmt.Sprintf("unexpected argument %q", set.Arg(0)), nil)
	}
	return f, nil
}

// Run is the program: it serves until ctx ends.
func Run(ctx context.Context, args []string, stderr io.Writer) error {
	f, err := parse(args, stderr)
	if err != nil {
		return err
	}
	unix.Umask(0o077)
	// Keys are in memory: no core file, no debugger of another process.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("not dumpable: %w", err)
	}
	dir := filepath.Join(f.data, "cofferdamd")
	lock, err := boot.Claim(dir)
	if err != nil {
		return task.Fail(task.InfraStorage, err.Error(), nil)
	}
	defer lock.Close()
	p := &plane{flags: f, dir: dir, boot: boot.NewID(), log: slog.New(slog.NewTextHandler(stderr, nil))}
	defer p.close()
	if err := p.open(ctx); err != nil {
		return err
	}
	listener, err := server.Listen(ctx, f.listen, f.public)
	if err != nil {
		return err
	}
	if err := p.connect(ctx, listener.Addr().(*net.TCPAddr).AddrPort()); err != nil {
		return errors.Join(err, listener.Close())
	}
	srv, err := p.server()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if err := boot.Announce(dir, "cofferdamd", p.boot, "http://"+listener.Addr().String()); err != nil {
		return errors.Join(err, listener.Close())
	}
	defer p.retain(ctx)()
	defer p.ask(ctx)()
	defer p.keepBudgets(ctx)()
	defer p.unmint(ctx)()
	p.log.Info("ready", "boot", p.boot, "address", listener.Addr().String(), "version", version)
	return srv.Serve(ctx, listener)
}

// plane is the control plane while it is put together.
type plane struct {
	flags      flags
	dir, boot  string
	listening  netip.AddrPort // the API's own; set before it serves
	log        *slog.Logger
	store      *store.Store
	audit      *audit.Log
	vault      *credential.Vault
	leases     *credential.Leases
	logins     *login.Minter // among the minters of leases
	inbox      *approval.Inbox
	prices     price.Table
	budgets    *budget.Keeper
	blobs      *output.Blobs
	policies   policies
	outside    outside
	retention  *retention.Keeper
	identities *identity.Identities
	issuer     *issuer.Issuer
	registry   *fleet.Registry
	fleet      *fleet.Fleet
	work       *steps.Work
	engine     *temporal.Engine
}

// open opens what lies in the data folder.
func (p *plane) open(ctx context.Context) error {
	var err error
	if p.outside, err = newOutside(p.flags); err != nil {
		return err
	}
	if p.prices, err = prices(p.flags.prices); err != nil {
		return err
	}
	if p.flags.operator != "" {
		text, err := os.ReadFile(p.flags.operator)
		if err != nil {
			return task.Fail(task.InputPolicy, "the operator's policy can't be read: "+err.Error(), nil)
		}
		if err := policy.CheckOperator(string(text)); err != nil {
			return err
		}
		p.policies.operator = string(text)
	}
	if p.store, err = store.Open(ctx, store.Options{Dir: p.dir, Logger: p.log}); err != nil {
		return err
	}
	p.policies.store = p.store
	keys := filepath.Join(p.dir, "keys")
	if err := os.MkdirAll(keys, 0o700); err != nil {
		return task.Fail(task.InfraStorage, "the folder of the keys can't be made: "+err.Error(), nil)
	}
	if err := p.openAudit(ctx, keys); err != nil {
		return err
	}
	if err := p.openIssuer(keys); err != nil {
		return err
	}
	if err := p.settleVault(ctx, keys); err != nil {
		return err
	}
	if p.vault, err = credential.Open(ctx, keys, p.store, time.Now); err != nil {
		return err
	}
	p.leases = credential.NewLeases(p.vault, p.store, p.audit, time.Now, p.minting())
	p.inbox = p.newInbox()
	if p.blobs, err = output.Open(filepath.Join(p.dir, "blobs")); err != nil {
		return err
	}
	p.retention = p.keeper()
	p.identities = identity.New(p.store, time.Now)
	return p.enrolOwn(ctx)
}

// enrol makes the token of a file, and the file when it is absent. A crash
// between the two is mended at the next start.
func (p *plane) enrol(ctx context.Context, file string, who identity.Request) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		text = []byte(identity.NewSecret().Reveal() + "\n")
		err = boot.WriteFile(file, text)
	}
	if err != nil {
		return task.Fail(task.InfraStorage, "token file "+file+": "+err.Error(), nil)
	}
	secret := identity.SecretFrom(string(text))
	if _, err := p.identities.Verify(ctx, secret, who.Role); err == nil {
		return nil
	}
	_, err = p.identities.Enrol(ctx, who, secret)
	return err
}

// connect makes the fleet and the link to the engine.
func (p *plane) connect(ctx context.Context, listening netip.AddrPort) error {
	p.listening = listening
	p.registry = fleet.NewRegistry(fleet.RegistryOptions{
		Authenticate: p.worker, Boot: p.boot, Version: version, Log: p.log,
	})
	if err := incident.Restore(ctx, workers.New(p.store.Base()), p.registry); err != nil {
		return err
	}
	p.fleet = fleet.New(p.registry, fleet.Options{Placement: p.store})
	p.budgets = p.newBudgets()
	p.work = steps.New(steps.Deps{
		Permission: p.fleet, FileFacts: p.store, Judge: patchflags.New(&secrets.Finder{}),
		Sandboxes: p.fleet, Facts: kept{p.store, p.blobs}, Logs: p.store, Blobs: p.blobs, Recorder: p.audit, Policies: &p.policies, Leases: p.leases, Masks: p.leases, Harnesses: harnesses(),
		Loop: p.loop(listening), Approvals: p.inbox, Budgets: purse.Purse{Budgets: p.budgets},
		Now: func() time.Time { return time.Now().UTC() }, Logger: p.log,
	})
	o := temporal.Options{
		KeyFile: filepath.Join(p.dir, "keys", "engine.key"), Steps: p.work, Open: open{p.store}.list, Logger: p.log,
		Address: p.flags.temporal, Namespace: p.flags.namespace,
	}
	if o.Address == "" {
		o.AddressFile = filepath.Join(p.flags.data, "engine", "boot.json")
		o.TokenFile = filepath.Join(p.flags.data, "engine", "token")
	}
	var err error
	p.engine, err = temporal.Connect(ctx, o)
	return err
}

// worker says which worker token a connection shows.
func (p *plane) worker(r *http.Request) (string, error) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", task.Fail(task.InputUnauthed, "no bearer token", nil)
	}
	who, err := p.identities.Verify(r.Context(), identity.SecretFrom(secret), identity.Worker)
	return who.User, err
}

func (p *plane) server() (*server.Server, error) {
	var hosts []string
	if p.flags.hosts != "" {
		hosts = strings.Split(p.flags.hosts, ",")
	}
	if host := p.issuerHost(); host != "" {
		hosts = append(hosts, host)
	}
	desk, err := credentials.New(credentials.Options{
		Vault: p.leases, Leases: p.leases, Machines: p.fleet, Grants: p.work, Life: credential.Life, Now: time.Now, Log: p.log,
	})
	if err != nil {
		return nil, err
	}
	inbox, spent := p.inboxDesk(), p.budgetDesk()
	return server.New(server.Options{
		Boot: p.boot, Version: version, Hosts: hosts, DataDir: p.dir, AuditKeys: func() (string, []string) { return p.audit.Key(), p.audit.Former() }, Log: p.log,
		Identities: p.identities, Tunnel: p.registry, Now: func() time.Time { return time.Now().UTC() },
		Needs: server.Needs{
			Tasks: kept{p.store, p.blobs}, Events: p.store, Removal: removal{p.retention, p.store}, Owners: p.store, Engine: p.engine, Policies: &p.policies, Blobs: p.blobs,
			Places: p.fleet, Commands: p.fleet, Console: p.fleet, Files: p.fleet, Single: p.fleet, Workers: p.fleet, Agents: p.fleet, Harnesses: harnesses(), Audit: p.audit,
			Budgets: spent, Approvals: inbox, Credentials: desk, Denials: p.store, History: p.store,
			Policy: &serverpolicies.Desk{Judge: &p.policies, Projects: p.store, Audit: p.audit, Now: func() time.Time { return time.Now().UTC() }},
			Desks:  []operation.Desk{inbox, spent, &runidentity.Desk{Issuer: p.issuer}, p.incident(), p.machines(), p.keyDesk(), p.evidence()},
			Probes: append([]server.Probe{
				{ID: "vault", Ask: p.vault.Check, OK: "every credential opens", Fix: "tasks that need none go on"},
				{ID: "store", Ask: p.store.Ping, OK: "the database answers", Fix: "look at the log of cofferdamd and at the disk"},
				{ID: "engine", Ask: p.engine.Ready, OK: "the engine answers", Fix: "look at the log of cofferdam-engine; tasks go on when it is back"},
			}, p.issuerProbes()...),
		},
	})
}

// close undoes open and connect in reverse.
func (p *plane) close() {
	if p.engine != nil {
		p.engine.Close()
	}
	if p.registry != nil {
		p.registry.Close()
	}
	if p.blobs != nil {
		_ = p.blobs.Close()
	}
	if p.store != nil {
		if err := p.store.Close(); err != nil {
			p.log.Error("close the database", "error", err)
		}
	}
}
