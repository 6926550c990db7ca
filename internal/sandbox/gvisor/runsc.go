package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// platform is how the sentry runs code. It is never probed for: a /dev/kvm that
// opens says nothing about whether it can run a guest.
const platform = "systrap"

// runscFlags are the flags of every runsc call for one sandbox.
func (d *Driver) runscFlags(b *box, network bool) []string {
	kind := "none"
	if network {
		kind = "sandbox"
	}
	return []string{
		"--root=" + d.runscRoot(),
		"--platform=" + platform,
		"--network=" + kind,
		// The gofer needs no network; a namespace of the worker's serves them all, and
		// none is pinned by a mount.
		fmt.Sprintf("--gofer-network-namespace=/proc/%d/fd/%d", os.Getpid(), d.quiet.Fd()),
		"--overlay2=root:dir=" + filepath.Join(b.dir, "disk") + ",size=" + strconv.FormatInt(b.record.Spec.Limits.Disk, 10),
		"--host-settings=ignore",
		"--log=" + filepath.Join(b.dir, "runsc.log"),
	}
}

// runsc starts the sandbox with one call of the runtime and returns when its
// first process runs.
func (d *Driver) runsc(ctx context.Context, b *box, nsPath string) error {
	if err := d.cfg.Step("bundle"); err != nil {
		return err
	}
	spec := b.record.Spec
	low, release := d.root()
	defer release()
	oci := bundle(d.cgroups.name(spec.ID), low, spec, nsPath)
	agents, err := d.agentBinds(spec)
	if err != nil {
		return err
	}
	oci.Mounts = append(oci.Mounts, agents...)
	text, err := json.Marshal(oci)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.dir, "bundle", "config.json"), text, 0o600); err != nil {
		return err
	}
	if err := d.cfg.Step("run"); err != nil {
		return err
	}
	args := append(d.runscFlags(b, spec.Network), "run", "--detach",
		"--bundle", filepath.Join(b.dir, "bundle"), "--pid-file", filepath.Join(b.dir, "pid"), spec.ID)
	cmd := exec.CommandContext(ctx, d.cfg.Runsc, args...)
	cmd.Env = []string{}
	if err := b.runWithFIFOs(cmd); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("runsc run: %w: %s", err, tail(filepath.Join(b.dir, "runsc.log")))
	}
	return nil
}

// runWithFIFOs gives the runtime, and through it the guest, descriptors of the
// FIFOs of their own: blocking ones, which do not share our flags.
func (b *box) runWithFIFOs(cmd *exec.Cmd) error {
	in, ierr := os.OpenFile(filepath.Join(b.dir, "in"), os.O_RDWR, 0)
	out, oerr := os.OpenFile(filepath.Join(b.dir, "out"), os.O_RDWR, 0)
	defer in.Close()
	defer out.Close()
	if err := errors.Join(ierr, oerr); err != nil {
		return err
	}
	// Standard error is the null device: the guest holds it, and a pipe of ours
	// would break when we die.
	cmd.Stdin, cmd.Stdout = in, out
	return cmd.Run()
}

// statePath is the runtime's record of a sandbox.
func (d *Driver) statePath(id string) string {
	return filepath.Join(d.runscRoot(), id+"_sandbox:"+id+".state")
}

// statePaths are all files that the runtime keeps of a sandbox.
func (d *Driver) statePaths(id string) []string {
	base := filepath.Join(d.runscRoot(), id+"_sandbox:"+id)
	return []string{base + ".state", base + ".lock", filepath.Join(d.runscRoot(), "runsc-"+id+".sock")}
}

func (d *Driver) removeState(id string) error {
	var failed error
	for _, path := range d.statePaths(id) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
