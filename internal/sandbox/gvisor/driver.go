package gvisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/lower"
	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/rootfs"
	"github.com/cofferdam/cofferdam/internal/sandbox/ledger"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Config says what a Driver works with. Dir, Runsc, Guest and Logger are
// required; Network too where sandboxes with network are asked for.
type Config struct {
	Dir      string          // the worker's folder; made when absent. Its path is at most 70 bytes long (a socket lies below)
	Runsc    string          // path of the runsc program
	Guest    string          // path of the cofferdam-guest program, statically linked
	Network  sandbox.Network // nil: sandboxes with network are refused
	Logger   *slog.Logger
	Images   string // folder of root images, which may be shared with other workers; empty: sandboxes see the host's folders through views, which are slower
	HostRoot string // the host's root folder; empty: /
	HostPath string // the search path of the host whose parts below /usr and /opt are kept inside; may be empty

	// Kept says that a sandbox is kept as evidence: it is not destroyed when its time
	// is over. Nil: none is.
	Kept func(id string) bool

	// Agents finds the folder of an installed agent; a *task.Failure when there is
	// none. Nil: sandboxes with agents are refused.
	Agents func(name, version string) (dir string, err error)

	// Step is called before each step of Create and Destroy with its name; an
	// error fails the step. Nil outside tests.
	Step func(step string) error
}

// Driver is the sandbox.Driver for gVisor.
type Driver struct {
	cfg     Config
	log     *slog.Logger
	ledger  *ledger.Ledger
	cgroups cgroups
	lower   lower.Folder
	images  *rootfs.Store // nil: none are made
	quiet   *os.File      // an empty network namespace, for the gofers
	lock    *os.File
	slots   chan struct{} // how many sandboxes are made at once
	probing atomic.Bool   // an image is being proved

	mu      sync.Mutex
	boxes   map[string]*box
	making  map[string]*making
	adopted bool // Adopt has run: what is not in boxes does not live
	closed  bool
}

var (
	_ sandbox.Driver  = (*Driver)(nil)
	_ sandbox.Console = (*Driver)(nil)
)

// maxRoot keeps the control socket's path (root + "/runsc-sb-….sock") within the
// 107 bytes of a Unix socket; runsc would put it into /run otherwise, where
// nothing of ours may lie.
const maxRoot = 107 - len("/runsc-sb-0123456789abcdef.sock")

// New opens the driver's folder. It does not touch what an earlier driver left:
// call Adopt next.
func New(cfg Config) (*Driver, error) {
	if cfg.HostRoot == "" {
		cfg.HostRoot = "/"
	}
	if cfg.Step == nil {
		cfg.Step = func(string) error { return nil }
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("worker folder: %w", err)
	}
	cfg.Dir = dir
	if err := checkConfig(cfg); err != nil {
		return nil, err
	}
	d := &Driver{
		cfg: cfg, log: cfg.Logger, boxes: map[string]*box{}, making: map[string]*making{},
		slots: make(chan struct{}, 2*runtime.NumCPU()),
	}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

func checkConfig(cfg Config) error {
	root := filepath.Join(cfg.Dir, "runsc")
	if len(root) > maxRoot {
		return task.Fail(task.InputInvalid, fmt.Sprintf("the worker's folder %s has %d bytes too many in its path; choose a shorter one",
			cfg.Dir, len(root)-maxRoot), nil)
	}
	if strings.ContainsAny(cfg.Dir, ",:") {
		return task.Fail(task.InputInvalid, fmt.Sprintf("the worker's folder %s must not hold a comma or a colon", cfg.Dir), nil)
	}
	return nil
}

func (d *Driver) open() (err error) {
	for _, dir := range []string{d.cfg.Dir, d.sandboxesDir(), d.runscRoot()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return task.Fail(task.InfraStorage, "the worker's folder can't be made", err)
		}
	}
	if d.lock, err = lockDir(d.cfg.Dir); err != nil {
		return err
	}
	if d.cgroups, err = loadCgroups(d.cfg.Dir); err != nil {
		return fmt.Errorf("cgroups: %w", err)
	}
	if missing := d.cgroups.missing(); len(missing) > 0 {
		return task.Fail(task.InfraMachine, "limits need cgroup controllers that can't be used here: "+strings.Join(missing, "; ")+
			"; mount the machine's cgroups where the worker can write to them (in a container: give it /sys/fs/cgroup writable)", nil)
	}
	if d.ledger, err = ledger.Open(filepath.Join(d.cfg.Dir, "ledger"), nil); err != nil {
		return task.Fail(task.InfraStorage, "the clean-up ledger can't be opened", err)
	}
	if d.lower, err = lower.Prepare(d.lowerDir(), d.cfg.HostRoot, d.cfg.Guest, gatewayIPv4); err != nil {
		return task.Fail(task.InfraStorage, "the sandboxes' root folder can't be made", err)
	}
	if err := d.openImages(); err != nil {
		return task.Fail(task.InfraStorage, "the folder of root images can't be used", err)
	}
	d.quiet, err = newNamespace(func() error { return nil })
	return err
}

func lockDir(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, task.Fail(task.InfraStorage, "the worker's folder can't be used", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		file.Close()
		return nil, task.Fail(task.InfraInternal, fmt.Sprintf("another worker uses %s; stop it first", dir), err)
	}
	return file, nil
}

func (d *Driver) sandboxesDir() string { return filepath.Join(d.cfg.Dir, "sandboxes") }
func (d *Driver) runscRoot() string    { return filepath.Join(d.cfg.Dir, "runsc") }
func (d *Driver) lowerDir() string     { return filepath.Join(d.cfg.Dir, "lower") }

func (d *Driver) folder(id string) string { return filepath.Join(d.sandboxesDir(), id) }

// Close lets go of everything without ending a sandbox: they live on, and the
// next driver adopts them.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	boxes := d.boxes
	d.boxes = map[string]*box{}
	d.mu.Unlock()
	for _, b := range boxes {
		b.release()
	}
	return d.release()
}

func (d *Driver) release() error {
	var failed error
	if d.ledger != nil {
		failed = d.ledger.Release()
	}
	for _, file := range []*os.File{d.quiet, d.lock} {
		if file != nil {
			failed = errors.Join(failed, file.Close())
		}
	}
	return failed
}

// find returns a living or dead sandbox.
func (d *Driver) find(id string) (*box, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b, ok := d.boxes[id]
	if !ok {
		return nil, task.Fail(task.InputNotFound, fmt.Sprintf("no sandbox %q on this machine", id), nil)
	}
	return b, nil
}

// List implements sandbox.Driver.
func (d *Driver) List(ctx context.Context) ([]sandbox.Info, error) {
	d.mu.Lock()
	boxes := make([]*box, 0, len(d.boxes))
	for _, b := range d.boxes {
		boxes = append(boxes, b)
	}
	d.mu.Unlock()
	infos := make([]sandbox.Info, 0, len(boxes))
	for _, b := range boxes {
		infos = append(infos, b.info())
	}
	slices.SortFunc(infos, func(a, b sandbox.Info) int { return strings.Compare(a.ID, b.ID) })
	return infos, ctx.Err()
}

// Reconcile destroys sandboxes that have expired and tries again what an earlier
// destroy could not finish. Call it on a timer.
func (d *Driver) Reconcile(ctx context.Context) error {
	now := time.Now()
	due := map[string]string{}
	d.mu.Lock()
	for id, b := range d.boxes {
		if now.After(b.spec().Expires) && (d.cfg.Kept == nil || !d.cfg.Kept(id)) {
			due[id] = "expired"
		}
	}
	for _, entry := range d.ledger.Entries() {
		_, known := d.boxes[entry.Sandbox]
		_, busy := d.making[entry.Sandbox]
		if !known && !busy {
			due[entry.Sandbox] = "left over"
		}
	}
	d.mu.Unlock()
	var failed error
	for id, why := range due {
		d.log.Info("sandbox: destroy", "sandbox", id, "why", why)
		failed = errors.Join(failed, d.Destroy(ctx, id))
	}
	return failed
}

// ReopenTAP opens the network device of a living sandbox again, for a keeper
// whose own descriptor is gone. The kernel refuses it while another holds it.
func (d *Driver) ReopenTAP(id string) (*os.File, error) {
	b, err := d.find(id)
	if err != nil {
		return nil, err
	}
	if !b.spec().Network {
		return nil, task.Fail(task.InputInvalid, fmt.Sprintf("sandbox %q has no network", id), nil)
	}
	return reopenTAP(b.sentry())
}
