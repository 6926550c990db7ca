//go:build root

package gvisor

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/gvisor/rootfs"
)

// A probe leaves nothing, however it ends.
func TestProbeLeavesNothing(t *testing.T) {
	d := onImages(t)
	images, release := d.images.Acquire()
	defer release()
	if err := d.probeImage(t.Context(), images["usr"]); err != nil {
		t.Errorf("a good image: %v", err)
	}
	wantNothing(t, d)
	bad := filepath.Join(t.TempDir(), "bad.erofs")
	if err := os.WriteFile(bad, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.probeImage(t.Context(), rootfs.Image{Name: "usr", Path: bad}); err == nil {
		t.Error("a program was run from an empty image")
	}
	wantNothing(t, d)
}

// A probe whose worker was killed is told by Audit and ended by the next worker.
func TestLeftoverProbe(t *testing.T) {
	cfg := testConfig(t, testDir(t))
	d := open(t, cfg)
	dir := d.probeRoot()
	text, err := json.Marshal(&specs.Spec{
		Version: specs.Version, Root: &specs.Root{Path: d.lower.Path, Readonly: true}, Mounts: d.lower.Views,
		Process: &specs.Process{Args: []string{"/bin/sleep", "1000"}, Cwd: "/", Env: []string{"PATH=/usr/bin:/bin"}, NoNewPrivileges: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cfg.Runsc, "--root="+dir, "--platform="+platform, "--network=none", "--gofer-network-namespace=new",
		"--host-settings=ignore", "--ignore-cgroups", "run", "--detach", "--bundle", dir, "probe")
	if err := cmd.Run(); err != nil { // No pipes: what lives on would hold them.
		t.Fatal(err)
	}
	left, err := d.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"process", "folder"} {
		if !slices.ContainsFunc(left, func(l sandbox.Leftover) bool { return l.Kind == kind }) {
			t.Errorf("no %s of the probe among %+v", kind, left)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	wantNothing(t, open(t, cfg))
}
