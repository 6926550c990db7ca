package server

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/worker"
	"github.com/cofferdam/cofferdam/internal/worker/workertest"
)

var (
	_ Places   = (*fleet.Fleet)(nil)
	_ Commands = (*fleet.Fleet)(nil)
	_ Files    = (*fleet.Fleet)(nil)
	_ Workers  = (*fleet.Fleet)(nil)
)

// withFleet is a site whose sandboxes are on a worker that came in through the
// site's own tunnel; its sandboxes are folders and processes of this machine.
func withFleet(t testing.TB) *site {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	registry := fleet.NewRegistry(fleet.RegistryOptions{Authenticate: Subject, Boot: "boot1", Log: quiet})
	t.Cleanup(registry.Close)
	f := fleet.New(registry, fleet.Options{})
	s := newSiteWith(t, func(o *Options) {
		o.Tunnel = registry
		o.Needs.Places, o.Needs.Commands, o.Needs.Files, o.Needs.Workers = f, f, f, f
	})
	dir := t.TempDir()
	for _, name := range []string{"sandboxes", "epochs"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	door := worker.New(worker.Options{
		ID: "machine-1", Boot: "wboot", Version: "test", Driver: workertest.New(filepath.Join(dir, "sandboxes")),
		Egress: &workertest.Gateway{File: filepath.Join(dir, "epoch")}, EpochDir: filepath.Join(dir, "epochs"),
		Machine: func() link.Machine { return link.Machine{Host: "h", CPUs: 2, Memory: 8 << 30} }, Log: quiet,
	})
	w := &link.Worker{
		Server: s.http.URL, Token: func() (string, error) { return s.tokens["worker"], nil }, Handler: door, Log: quiet,
		Backoff: 100 * time.Millisecond,
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Keep(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func TestThroughTheTunnel(t *testing.T) {
	s := withFleet(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	alice := s.as(t, "alice")
	sb, err := alice.CreateSandbox(ctx, api.SandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := alice.RemoveSandbox(context.WithoutCancel(ctx), sb.ID); err != nil {
			t.Error(err)
		}
	}()
	r, err := alice.Exec(ctx, sb.ID, api.ExecRequest{Argv: []string{"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, Wait: true})
	if err != nil || !r.Done || r.Command.ExitCode != 3 || r.Next != 8 {
		t.Fatalf("%+v %v", r, err)
	}
	// This driver writes both streams as one.
	var out bytes.Buffer
	st, err := alice.Run(ctx, sb.ID, api.ExecRequest{Argv: []string{"/bin/sh", "-c", "seq 1 400000"}}, &out, &out)
	if err != nil || st.ExitCode != 0 || out.Len() != 2688895 || !strings.HasSuffix(out.String(), "\n399999\n400000\n") {
		t.Errorf("%+v %v: %d bytes", st, err, out.Len())
	}
	if r, err := alice.Exec(ctx, sb.ID, api.ExecRequest{ID: "long", Argv: []string{"/bin/sh", "-c", "echo up; exec sleep 1000"}}); err != nil || !r.Command.Started {
		t.Fatalf("%+v %v", r, err)
	}
	st, err = alice.ExecStream(ctx, sb.ID, "long", 0, func(f api.Frame) error { return alice.KillCommand(ctx, sb.ID, "long") })
	if err != nil || st.Signal != 9 || st.Output != 3 {
		t.Errorf("%+v %v", st, err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: "f", Mode: 0o600, Size: 5, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, "bytes")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := alice.PutFiles(ctx, sb.ID, "/workspace", &archive); err != nil {
		t.Fatal(err)
	}
	body, err := alice.GetFiles(ctx, sb.ID, "/workspace/f")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	in := tar.NewReader(body)
	if h, err := in.Next(); err != nil || h.Size != 5 {
		t.Fatalf("%+v %v", h, err)
	}
	if data, err := io.ReadAll(in); err != nil || string(data) != "bytes" {
		t.Errorf("%q %v", data, err)
	}
	if list, err := alice.Sandboxes(ctx); err != nil || len(list) != 1 || list[0].Worker != "machine-1" {
		t.Errorf("%+v %v", list, err)
	}
	if d, err := alice.Doctor(ctx); err != nil || len(d.Checks) < 3 {
		t.Errorf("%+v %v", d, err)
	}
	if ws, err := alice.Workers(ctx); err != nil || len(ws) != 1 || ws[0].State != "connected" {
		t.Errorf("%+v %v", ws, err)
	}
}
