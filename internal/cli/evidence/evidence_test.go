package evidence

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/host"
)

// TestExport: an archive is written whole or not at all, and over nothing.
func TestExport(t *testing.T) {
	whole := true
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		_, _ = w.Write([]byte("123"))
		if !whole {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write([]byte("45"))
	}))
	t.Cleanup(s.Close)
	dir := t.TempDir()
	there := filepath.Join(dir, "there.tar")
	if err := os.WriteFile(there, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		var b bytes.Buffer
		work := func(ctx context.Context, work func(context.Context, *client.Client) error) error {
			c, err := client.New(s.URL, "cfd_x")
			if err != nil {
				return err
			}
			return work(ctx, c)
		}
		cmd := Host{
			Host: host.Host{
				Ask: work, Stay: work, JSON: func() bool { return false }, Print: func(any) error { return nil }, Out: &b,
				Failed: func() error { return errors.New("not verified") },
			},
			Keys: func([]string) (string, error) { return "x+00000000+AAAA", nil },
		}.evidence()
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.ExecuteContext(t.Context())
		return b.String(), err
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no file":              {[]string{"sb-aaaaaaaaaaaaaaaa"}, "-o FILE is needed"},
		"one that is there":    {[]string{"sb-aaaaaaaaaaaaaaaa", "-o", there}, "over nothing"},
		"no folder":            {[]string{"sb-aaaaaaaaaaaaaaaa", "-o", filepath.Join(dir, "no", "x.tar")}, "-o "},
		"no archive":           {[]string{"--check", there, "--key", "x"}, "not verified"},
		"an archive not there": {[]string{"--check", filepath.Join(dir, "none"), "--key", "x"}, "no such file"},
	} {
		if out, err := run(c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	if text, err := os.ReadFile(there); err != nil || string(text) != "kept" {
		t.Errorf("%q, %v", text, err)
	}
	file := filepath.Join(dir, "found.tar")
	whole = false
	if _, err := run("sb-aaaaaaaaaaaaaaaa", "-o", file); err == nil {
		t.Error("half an archive is one")
	}
	if left, _ := filepath.Glob(file + "*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	whole = true
	if out, err := run("sb-aaaaaaaaaaaaaaaa", "-o", file); err != nil || !strings.Contains(out, "5 bytes") {
		t.Errorf("%v\n%s", err, out)
	}
	if left, _ := filepath.Glob(file + "*"); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}
