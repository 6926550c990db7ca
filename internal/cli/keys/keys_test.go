package keys

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/host"
)

// server answers as the platform does: vault goes, lost does not.
func server(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/keys", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"keys":[{"name":"tokens","rotation":"running"},{"name":"vault","rotation":"running","for":"f","where":"w"},{"name":"lost","rotation":"running"},{"name":"engine-token","rotation":"stopped","how":"stop it"}]}`))
	})
	mux.HandleFunc("POST /v1/keys/{name}/rotate", func(w http.ResponseWriter, r *http.Request) {
		switch name := r.PathValue("name"); name {
		case "lost":
			w.Header().Set("Content-Type", api.ProblemType)
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte(`{"code":"infra.vault","detail":"the key is lost"}`))
		case "tokens":
			_, _ = w.Write([]byte(`{"name":"tokens","tokens":[{"id":"tok-2","user":"admin","role":"admin","secret":"cfd_new","instead":"tok-1","yours":true},{"id":"tok-4","user":"worker","role":"worker","instead":"tok-3","file":true}]}`))
		default:
			_, _ = w.Write([]byte(`{"name":"` + name + `","id":"new","sealed":2}`))
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// run runs one command line and gives what it printed.
func run(t *testing.T, url string, args ...string) (out, saved, renewed string, err error) {
	t.Helper()
	var b bytes.Buffer
	h := Host{
		Host: host.Host{
			Ask: func(ctx context.Context, work func(context.Context, *client.Client) error) error {
				c, err := client.New(url, "cfd_old")
				if err != nil {
					return err
				}
				return work(ctx, c)
			},
			JSON: func() bool { return false }, Print: func(any) error { return nil }, Out: &b, Failed: func() error { return errors.New("failed") },
		},
		Save:      func(token string) error { saved = token; return nil },
		Renew:     func(data, name string) error { renewed = data + " " + name; return nil },
		Renewable: func(name string) bool { return name == "engine-token" },
	}
	for _, cmd := range Commands(h) {
		if cmd.Name() != args[0] {
			continue
		}
		cmd.SetArgs(args[1:])
		cmd.SetOut(&b)
		cmd.SetErr(&b)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err = cmd.ExecuteContext(t.Context())
	}
	return b.String(), saved, renewed, err
}

func TestRotateIsRefused(t *testing.T) {
	url := server(t)
	for line, want := range map[string]string{
		"rotate":                    "the name of one key, or --all",
		"rotate vault --all":        "the name of one key, or --all",
		"rotate vault --data /d":    "leave --data out",
		"rotate --all --user alice": "name that key",
		"rotate lost":               "the key is lost",
		"rotate vault engine":       "accepts at most 1 arg",
	} {
		out, saved, renewed, err := run(t, url, strings.Fields(line)...)
		if err == nil || !strings.Contains(err.Error(), want) || saved != "" || renewed != "" {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}

func TestRotate(t *testing.T) {
	url := server(t)
	if _, _, renewed, err := run(t, url, "rotate", "engine-token", "--data", "/d"); err != nil || renewed != "/d engine-token" {
		t.Errorf("%q, %v", renewed, err)
	}
	out, saved, _, err := run(t, url, "rotate", "tokens")
	if err != nil || saved != "cfd_new" || !strings.Contains(out, "cfd_new") || !strings.Contains(out, "in the file of this machine") {
		t.Errorf("%q, %v\n%s", saved, err, out)
	}
	// All: one that fails stops no other, and is told.
	out, saved, _, err = run(t, url, "rotate", "--all")
	if err == nil || saved != "cfd_new" {
		t.Errorf("%q, %v", saved, err)
	}
	for _, want := range []string{"key vault: made anew, now new, values sealed under it: 2", "key lost: NOT made anew", "the key is lost", "key engine-token: left as it is: stop it", "key tokens: made anew"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out, _, _, err = run(t, url, "ls"); err != nil || !strings.Contains(out, "vault") || !strings.Contains(out, "never") {
		t.Errorf("%v\n%s", err, out)
	}
}
