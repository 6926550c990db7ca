//go:build root

package gvisor

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/sandbox/sandboxtest"
)

func benchDriver(b *testing.B) *Driver {
	b.Helper()
	dir, err := os.MkdirTemp("", "cd")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	d, err := New(Config{Dir: dir, Runsc: programs.runsc, Guest: programs.guest, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	if err := d.Adopt(b.Context()); err != nil {
		b.Fatal(err)
	}
	return d
}

func firstOutput(b *testing.B, d *Driver, id, command string) {
	b.Helper()
	if _, err := d.Start(b.Context(), id, sandbox.Command{ID: command, Argv: []string{"echo", "x"}}); err != nil {
		b.Fatal(err)
	}
	stream, err := d.Attach(b.Context(), id, command, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer stream.Close()
	if _, err := stream.Next(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCreate is create to the first command's output, cold.
func BenchmarkCreate(b *testing.B) {
	d := benchDriver(b)
	for b.Loop() {
		id := sandboxtest.ID()
		if _, err := d.Create(b.Context(), sandbox.Spec{ID: id}); err != nil {
			b.Fatal(err)
		}
		firstOutput(b, d, id, "c")
		b.StopTimer()
		if err := d.Destroy(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkRunscRun is its floor: the runtime's own command line with the same
// bundle, running the same program.
func BenchmarkRunscRun(b *testing.B) {
	d := benchDriver(b)
	for b.Loop() {
		b.StopTimer()
		spec, err := checkSpec(sandbox.Spec{ID: sandboxtest.ID()}, time.Now())
		if err != nil {
			b.Fatal(err)
		}
		box := &box{dir: d.folder(spec.ID), record: record{Spec: spec}}
		if err := d.makeFolder(spec.ID); err != nil {
			b.Fatal(err)
		}
		oci := bundle(d.cgroups.name(spec.ID), d.lower, spec, "")
		oci.Process.Args = []string{"/bin/echo", "x"}
		text, err := json.Marshal(oci)
		if err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(box.dir, "bundle", "config.json"), text, 0o600); err != nil {
			b.Fatal(err)
		}
		cmd := exec.Command(d.cfg.Runsc, append(d.runscFlags(box, false), "run", "--bundle", filepath.Join(box.dir, "bundle"), spec.ID)...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		os.RemoveAll(box.dir)
		b.StartTimer()
	}
}

// BenchmarkExec is one command in a living sandbox, to its end.
func BenchmarkExec(b *testing.B) {
	d := benchDriver(b)
	id := sandboxtest.ID()
	if _, err := d.Create(b.Context(), sandbox.Spec{ID: id}); err != nil {
		b.Fatal(err)
	}
	defer d.Destroy(b.Context(), id)
	n := 0
	for b.Loop() {
		n++
		firstOutput(b, d, id, fmt.Sprintf("c%d", n))
	}
}

// BenchmarkCreate50 is fifty creates at once; see BenchmarkCreate for one.
func BenchmarkCreate50(b *testing.B) {
	d := benchDriver(b)
	for b.Loop() {
		ids := make([]string, 50)
		var wg sync.WaitGroup
		for i := range ids {
			ids[i] = sandboxtest.ID()
			wg.Go(func() {
				if _, err := d.Create(b.Context(), sandbox.Spec{ID: ids[i]}); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		b.ReportMetric(float64(d.proportional(b))/50/1e6, "PSS-MB/sandbox")
		for _, id := range ids {
			wg.Go(func() {
				if err := d.Destroy(b.Context(), id); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
		b.StartTimer()
	}
}

// proportional sums the proportional set size of all sandboxes' processes.
func (d *Driver) proportional(b *testing.B) int64 {
	b.Helper()
	var sum int64
	for id := range d.cgroups.all() {
		for _, pid := range d.cgroups.members(id) {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
			if err != nil {
				continue
			}
			var kb int64
			if _, after, ok := strings.Cut(string(text), "\nPss:"); ok {
				fmt.Sscan(after, &kb)
			}
			sum += kb << 10
		}
	}
	return sum
}
