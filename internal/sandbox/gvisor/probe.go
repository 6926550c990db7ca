package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/rootfs"
)

// probeLimit bounds the proof of an image.
const probeLimit = 60 * time.Second

// probeRoot is the runtime's folder for the probe of an image. There is one probe
// at a time, since a worker makes one image after the other; what is there when
// none runs was left over.
func (d *Driver) probeRoot() string { return filepath.Join(d.cfg.Dir, "probe") }

// probeImage runs a program in a throw-away sandbox that sees one folder through
// the image: a whole file with the right beginning proves little.
func (d *Driver) probeImage(ctx context.Context, image rootfs.Image) (err error) {
	d.probing.Store(true)
	defer d.probing.Store(false)
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	if err := d.endProbe(ctx); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
		defer cancel()
		err = errors.Join(err, d.endProbe(ctx))
	}()
	dir := d.probeRoot()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	low := withImages(d.lower, map[string]rootfs.Image{image.Name: image})
	text, err := json.Marshal(&specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: low.Path, Readonly: true},
		Process: &specs.Process{
			Args: []string{"/bin/ls", "-l", "/" + image.Name}, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin"}, NoNewPrivileges: true,
		},
		Mounts: low.Views,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		return err
	}
	if err := d.cfg.Step("probe"); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, d.cfg.Runsc, "--root="+dir, "--platform="+platform, "--network=none",
		"--gofer-network-namespace=new", "--host-settings=ignore", "--ignore-cgroups", "run", "--bundle", dir, "probe")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// The signal is sent when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out[max(0, len(out)-500):])))
	}
	return nil
}

// endProbe ends what runs of a probe and removes its folder.
func (d *Driver) endProbe(ctx context.Context) error {
	for round := 0; ; round++ {
		left, err := processesBelow(d.probeRoot())
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return os.RemoveAll(d.probeRoot())
		}
		for _, p := range left {
			p.kill()
		}
		if err := pause(ctx, round); err != nil {
			return fmt.Errorf("the probe of an image: %d processes do not end: %w", len(left), err)
		}
	}
}

// auditProbe finds what is left of a probe when none runs.
func (d *Driver) auditProbe(add func(kind, name, id, detail string)) error {
	if d.probing.Load() {
		return nil
	}
	left, err := processesBelow(d.probeRoot())
	if err != nil {
		return fmt.Errorf("audit: processes: %w", err)
	}
	_, serr := os.Lstat(d.probeRoot())
	if d.probing.Load() {
		return nil // It began meanwhile.
	}
	for _, p := range left {
		add("process", fmt.Sprint(p.PID), "", "the probe of an image: "+p.Title)
	}
	if serr == nil {
		add("folder", d.probeRoot(), "", "the probe of an image")
	}
	return nil
}
