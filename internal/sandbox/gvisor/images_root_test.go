//go:build root

package gvisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/sandboxtest"
)

// onImages returns an adopted driver whose root images are ready. The images are
// kept between runs, in the folder that testenv's platforms use as well.
func onImages(t *testing.T) *Driver {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t, testDir(t))
	cfg.Images = filepath.Join(cache, "cofferdam-test", "images")
	d := open(t, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { d.KeepImages(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	for end := time.Now().Add(10 * time.Minute); !ready(d); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no images: %+v", d.Images())
		}
	}
	return d
}

func ready(d *Driver) bool {
	for _, status := range d.Images() {
		if !status.Ready {
			return false
		}
	}
	return len(d.Images()) > 0
}

// The contract holds on images as it does on views.
func TestConformanceOnImages(t *testing.T) {
	onImages(t) // Made once, outside of the suite's patience.
	sandboxtest.Run(t, func(t *testing.T) sandbox.Driver { return onImages(t) })
}

// What a sandbox sees through an image is what the host has.
func TestImageShowsTheHost(t *testing.T) {
	d := onImages(t)
	info := sandboxtest.Create(t, d, sandbox.Spec{})
	got := sandboxtest.Shell(t, d, info.ID, `grep ' /usr ' /proc/mounts; touch /usr/x; echo $?`)
	if !strings.Contains(got.Stdout, " erofs ro") || !strings.HasSuffix(got.Stdout, "\n1\n") || !strings.Contains(got.Stderr, "Read-only file system") {
		t.Errorf("mount: %+v", got)
	}
	names := []string{"/usr/bin/python3", "/usr/bin/git", "/usr/lib/os-release", "/usr/bin", "/usr/share/zoneinfo/UTC", "/usr/sbin", "/usr/bin/su"}
	got = sandboxtest.Shell(t, d, info.ID, "for f in "+strings.Join(names, " ")+"; do stat -L -c '%n %s %a %u %g %Y' $f; done; sha256sum /usr/bin/git")
	if got.ExitCode != 0 {
		t.Fatalf("%+v", got)
	}
	for line := range strings.Lines(got.Stdout) {
		var name string
		var size, mode, uid, gid, modified int64
		if n, _ := fmt.Sscanf(line, "%s %d %o %d %d %d", &name, &size, &mode, &uid, &gid, &modified); n != 6 {
			continue
		}
		host, err := os.Stat(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if host.Mode().IsRegular() && host.Size() != size || host.ModTime().Unix() != modified || int64(host.Mode().Perm()) != mode&0o777 {
			t.Errorf("%s inside; %v %d %o outside", strings.TrimSpace(line), host.ModTime().Unix(), host.Size(), host.Mode().Perm())
		}
	}
}

// A tool that the operator installs is seen by the next sandbox, image or not.
func TestNewToolIsSeenAtOnce(t *testing.T) {
	d := onImages(t)
	tool := filepath.Join("/usr/local/bin", fmt.Sprintf("cofferdam-test-%d", os.Getpid()))
	t.Cleanup(func() { os.Remove(tool) })
	if err := os.WriteFile(tool, []byte("#!/bin/sh\necho new tool\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute) // A stamp is believed for a second.
	for {
		info := sandboxtest.Create(t, d, sandbox.Spec{})
		got := sandboxtest.Shell(t, d, info.ID, filepath.Base(tool))
		if got.Stdout == "new tool\n" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", got)
		}
	}
}
