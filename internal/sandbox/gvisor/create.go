package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/ledger"
	"github.com/cofferdam/cofferdam/internal/task"
)

// making is a sandbox being made or destroyed. Everyone else who wants the id
// waits for it.
type making struct {
	done     chan struct{}
	cancel   context.CancelFunc // nil: it is being destroyed
	waiters  int
	unwanted bool // it was destroyed while it was made
	err      error
}

// createLimit bounds one creation, whatever the callers' patience.
const createLimit = 2 * time.Minute

// undoLimit bounds cleaning up after a creation that failed.
const undoLimit = 30 * time.Second

// Create implements sandbox.Driver.
func (d *Driver) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	spec, err := checkSpec(spec, time.Now())
	if err != nil {
		return sandbox.Info{}, err
	}
	if spec.Network && d.cfg.Network == nil {
		return sandbox.Info{}, task.Fail(task.InputInvalid, "this machine gives sandboxes no network", nil)
	}
	if _, err := d.agentBinds(spec); err != nil {
		return sandbox.Info{}, err
	}
	for {
		d.mu.Lock()
		if d.closed || !d.adopted {
			d.mu.Unlock()
			return sandbox.Info{}, task.Fail(task.InfraSandboxCreate, "the worker is starting or stopping", nil)
		}
		if b, ok := d.boxes[spec.ID]; ok {
			d.mu.Unlock()
			return b.info(), nil
		}
		m, ok := d.making[spec.ID]
		if !ok {
			m = d.startMaking(ctx, spec)
		}
		m.waiters++
		d.mu.Unlock()
		err := d.await(ctx, m)
		d.mu.Lock()
		gone := m.unwanted || err == nil && m.cancel != nil && d.boxes[spec.ID] == nil
		d.mu.Unlock()
		switch {
		case gone && ctx.Err() == nil: // To make it again would outlive the one who destroyed it.
			return sandbox.Info{}, task.Fail(task.InfraSandboxCreate, "the sandbox was destroyed while it was made", nil)
		case errors.Is(err, context.Canceled) && ctx.Err() == nil:
			continue // Others gave up on it; this caller did not.
		case err != nil:
			return sandbox.Info{}, err
		}
	}
}

// startMaking makes the sandbox in the background, because other callers may
// want it when this one has gone. d.mu is held.
func (d *Driver) startMaking(ctx context.Context, spec sandbox.Spec) *making {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), createLimit)
	m := &making{done: make(chan struct{}), cancel: cancel}
	d.making[spec.ID] = m
	go func() {
		defer cancel()
		b, err := d.make(work, spec)
		d.mu.Lock()
		delete(d.making, spec.ID)
		switch {
		case err != nil:
			m.err = err
		case d.closed: // The next driver adopts it.
			b.release()
			m.err = task.Fail(task.InfraSandboxCreate, "the worker is stopping", nil)
		default:
			d.boxes[spec.ID] = b
		}
		d.mu.Unlock()
		if m.err == nil {
			go d.watch(b)
		}
		close(m.done)
	}()
	return m
}

// await waits for m. The last caller to lose patience ends the work, and stays
// until what was made is gone again.
func (d *Driver) await(ctx context.Context, m *making) error {
	defer func() {
		d.mu.Lock()
		m.waiters--
		d.mu.Unlock()
	}()
	select {
	case <-m.done:
		return m.err
	case <-ctx.Done():
	}
	d.mu.Lock()
	last := m.waiters == 1
	d.mu.Unlock()
	if last && m.cancel != nil {
		m.cancel()
		<-m.done
	}
	return ctx.Err()
}

// entries are the ledger's entries of a sandbox: every kind of host object that
// it may come to have.
func (d *Driver) entries(spec sandbox.Spec) []ledger.Entry {
	id := spec.ID
	entries := []ledger.Entry{
		{Kind: "folder", Name: d.folder(id), Sandbox: id},
		{Kind: "cgroup", Name: d.cgroups.name(id), Sandbox: id},
		{Kind: "process", Name: "runsc " + id, Sandbox: id},
		{Kind: "state", Name: d.statePath(id), Sandbox: id},
	}
	if spec.Network {
		entries = append(entries,
			ledger.Entry{Kind: "namespace", Name: deviceName, Sandbox: id},
			ledger.Entry{Kind: "gateway", Name: id, Sandbox: id})
	}
	return entries
}

// make makes a sandbox or leaves nothing.
func (d *Driver) make(ctx context.Context, spec sandbox.Spec) (b *box, err error) {
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if len(d.ledger.Of(spec.ID)) > 0 { // An earlier one of this name could not be removed.
		if err := d.tearDown(ctx, spec.ID); err != nil {
			return nil, task.Fail(task.InfraSandboxCreate, "what is left of an earlier sandbox of this name can't be removed", err)
		}
	}
	if err := d.ledger.Open(d.entries(spec)...); err != nil {
		return nil, task.Fail(task.InfraStorage, "the clean-up ledger can't be written", err)
	}
	defer func() {
		if err == nil {
			return
		}
		if b != nil {
			b.release()
			b = nil
		}
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
		defer cancel()
		if uerr := d.tearDown(undo, spec.ID); uerr != nil {
			d.log.Error("sandbox: clean up after a failed create", "sandbox", spec.ID, "error", uerr)
			err = errors.Join(err, uerr)
		}
		err = createFailure(err)
	}()
	if err := d.makeFolder(spec.ID); err != nil {
		return nil, err
	}
	return d.boot(ctx, spec)
}

// createFailure gives an error of Create its reason code.
func createFailure(err error) error {
	var failure *task.Failure
	switch {
	case errors.As(err, &failure):
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return task.Fail(task.InfraStorage, "the worker's disk is full; free some space", err)
	case errors.Is(err, context.Canceled):
		return err
	}
	return task.Fail(task.InfraSandboxCreate, "the sandbox could not be made", err)
}

func (d *Driver) makeFolder(id string) error {
	if err := d.cfg.Step("folder"); err != nil {
		return err
	}
	dir := d.folder(id)
	for _, path := range []string{dir, filepath.Join(dir, "bundle"), filepath.Join(dir, "disk"), filepath.Join(dir, "commands")} {
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
	}
	for _, name := range []string{"in", "out"} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			return &os.PathError{Op: "mkfifo", Path: filepath.Join(dir, name), Err: err}
		}
	}
	return nil
}

// boot starts the sandbox's kernel and its guest.
func (d *Driver) boot(ctx context.Context, spec sandbox.Spec) (*box, error) {
	b := &box{dir: d.folder(spec.ID), record: record{
		Spec: spec, CreatedAt: time.Now().UTC(), Lower: d.lower.Path, Boot: bootID(),
	}}
	nsPath, authority, ns, err := d.connect(ctx, spec)
	if ns != nil {
		defer ns.Close() // The sentry keeps it from here on.
	}
	if err != nil {
		return b, err
	}
	if err := b.openFIFOs(); err != nil {
		return b, err
	}
	if err := d.start(ctx, b, nsPath); err != nil {
		return b, err
	}
	if err := d.cfg.Step("started"); err != nil {
		return b, err
	}
	if b.record.Sentry, b.record.Kernel, err = d.lookSentry(spec.ID); err != nil {
		return b, err
	}
	if b.pidfd, err = b.record.Sentry.watch(); err != nil {
		return b, fmt.Errorf("the sandbox's kernel ended at once: %w", err)
	}
	if err := b.configure(ctx, d.guestConfig(authority)); err != nil {
		return b, err
	}
	if err := d.cfg.Step("configured"); err != nil {
		return b, err
	}
	if err := writeRecord(b.dir, b.record); err != nil {
		return b, err
	}
	return b, d.cfg.Step("recorded")
}

// start runs the runtime and greets the guest at the same time: the greeting waits
// in the FIFO, and the guest answers while the runtime's program still ends.
func (d *Driver) start(ctx context.Context, b *box, nsPath string) error {
	dialing, cancel := context.WithCancel(ctx)
	defer cancel()
	ran := make(chan error, 1)
	go func() {
		err := d.runsc(ctx, b, nsPath)
		if err != nil {
			cancel() // Nobody will answer.
		}
		ran <- err
	}()
	dialed := b.dial(dialing, d.log)
	if err := <-ran; err != nil {
		return err
	}
	return dialed
}

// connect makes the sandbox's namespace and device and gives the device to the
// gateway.
func (d *Driver) connect(ctx context.Context, spec sandbox.Spec) (nsPath string, authority []byte, ns *os.File, err error) {
	if !spec.Network {
		return "", nil, nil, nil
	}
	if err := d.cfg.Step("namespace"); err != nil {
		return "", nil, nil, err
	}
	ns, tap, err := newNetwork()
	if err != nil {
		return "", nil, nil, err
	}
	defer tap.Close()
	if err := d.cfg.Step("gateway"); err != nil {
		return "", nil, ns, err
	}
	authority, err = d.cfg.Network.Attach(ctx, spec.ID, sandbox.Device{
		File: tap, Name: deviceName, MTU: deviceMTU, MAC: gatewayMAC, MaxNames: spec.Limits.Names, MaxConnections: spec.Limits.Connections,
	})
	if err != nil {
		return "", nil, ns, fmt.Errorf("gateway: %w", err)
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()), authority, ns, nil
}

// openFIFOs opens the control channel read-write, so that neither end ever sees
// an end of file or waits for the other.
func (b *box) openFIFOs() error {
	for _, name := range []string{"in", "out"} {
		file, err := os.OpenFile(filepath.Join(b.dir, name), os.O_RDWR|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		b.fifos = append(b.fifos, file)
	}
	return nil
}

// lookSentry finds the sandbox's kernel among the host's processes and says what
// it is, from what it runs and not from what was asked for.
func (d *Driver) lookSentry(id string) (process, string, error) {
	text, err := os.ReadFile(filepath.Join(d.folder(id), "pid"))
	if err != nil {
		return process{}, "", fmt.Errorf("the sandbox's process: %w", err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		return process{}, "", fmt.Errorf("the sandbox's process: %w", err)
	}
	p, err := lookProcess(pid)
	if err != nil {
		return process{}, "", fmt.Errorf("the sandbox's process %d: %w", pid, err)
	}
	argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return process{}, "", err
	}
	ours, oerr := os.Stat(d.cfg.Runsc)
	running, rerr := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err := errors.Join(oerr, rerr); err != nil {
		return process{}, "", err
	}
	if !strings.HasPrefix(string(argv), "runsc-sandbox\x00") || !os.SameFile(ours, running) {
		return process{}, "", fmt.Errorf("process %d is not a gVisor kernel of our runsc", pid)
	}
	return p, "gvisor " + platform, nil
}

// tail returns the end of the runtime's log, for errors.
func tail(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	const most = 2000
	if info, err := file.Stat(); err == nil && info.Size() > most {
		if _, err := file.Seek(-most, io.SeekEnd); err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
