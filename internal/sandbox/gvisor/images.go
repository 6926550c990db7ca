package gvisor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/lower"
	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/rootfs"
)

// workspace is where the task's files lie inside.
const workspace = "/workspace"

// packageRecords change when software is installed or removed.
var packageRecords = []string{
	"var/lib/dpkg/status", "lib/apk/db/installed", "var/lib/rpm/rpmdb.sqlite", "usr/lib/sysimage/rpm/rpmdb.sqlite", "var/lib/pacman/local",
}

// openImages opens the store of root images, when there is to be one.
func (d *Driver) openImages() (err error) {
	if d.cfg.Images == "" {
		return nil
	}
	cfg := rootfs.Config{Dir: d.cfg.Images, Mkfs: "mkfs.erofs", Logger: d.log, Probe: d.probeImage}
	for _, view := range d.lower.Views {
		cfg.Sources = append(cfg.Sources, rootfs.Source{Name: strings.TrimPrefix(view.Destination, "/"), Path: view.Source})
	}
	for _, record := range packageRecords {
		cfg.Records = append(cfg.Records, filepath.Join(d.cfg.HostRoot, record))
	}
	d.images, err = rootfs.New(cfg)
	return err
}

// KeepImages makes the root images, and makes them anew when the machine changes,
// until ctx ends. Sandboxes can be made before, and while, it runs.
func (d *Driver) KeepImages(ctx context.Context) {
	if d.images != nil {
		d.images.Run(ctx)
	}
}

// Images tells how far the root images are; none: images are not made here.
func (d *Driver) Images() []rootfs.Status {
	if d.images == nil {
		return nil
	}
	return d.images.Status()
}

// root returns the lower folder with an image in place of each view that has one.
// They stay until release is called.
func (d *Driver) root() (low lower.Folder, release func()) {
	if d.images == nil {
		return d.lower, func() {}
	}
	images, release := d.images.Acquire()
	return withImages(d.lower, images), release
}

func withImages(low lower.Folder, images map[string]rootfs.Image) lower.Folder {
	views := make([]specs.Mount, 0, len(low.Views))
	for _, view := range low.Views {
		if image, ok := images[strings.TrimPrefix(view.Destination, "/")]; ok {
			view = specs.Mount{
				Destination: view.Destination, Type: "erofs", Source: image.Path, Options: []string{"ro", "nosuid", "nodev"},
			}
		}
		views = append(views, view)
	}
	low.Views = views
	return low
}

// probeLimit bounds the proof of an image.
const probeLimit = 60 * time.Second

// probeImage runs a program in a throw-away sandbox that sees one folder through
// the image: a whole file with the right beginning proves little.
func (d *Driver) probeImage(ctx context.Context, image rootfs.Image) error {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "runsc-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
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
	cmd := exec.CommandContext(ctx, d.cfg.Runsc, "--root="+dir, "--platform="+platform, "--network=none",
		"--gofer-network-namespace=new", "--host-settings=ignore", "--ignore-cgroups", "run", "--bundle", dir, "probe")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out[max(0, len(out)-500):])))
	}
	return nil
}
