package gvisor

import (
	"context"
	"path/filepath"
	"strings"

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
