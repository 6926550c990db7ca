package loop_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/agent/loop"
	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// house resolves every name to this machine.
type house struct{}

func (house) Lookup(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// lends gives the real key to the one lease there is, until it is revoked.
type lends struct{ revoked bool }

func (l *lends) Value(_ context.Context, sandbox string, lease task.Lease) (outbound.Secret, error) {
	if l.revoked || sandbox != "sb-aaaaaaaaaaaaaaaa" || lease.ID != "l-aaaaaaaaaaaaaaaa" {
		return outbound.Secret{}, task.Fail(task.PolicyCredential, "the lease has ended", nil)
	}
	return task.NewSecret(realKey), nil
}

// through is a rig whose way out is the product's, with what it asks for.
type through struct {
	*rig
	grant  task.Grant
	lender *lends
	host   string
}

func newThrough(t *testing.T, o modeltest.Options) *through {
	r := newRig(t, o)
	u, err := url.Parse(r.http.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	r.agent.ModelURL = "https://example.com:" + u.Port()
	th := &through{rig: r, lender: &lends{}, host: "example.com", grant: task.Grant{
		Task: taskID, Stage: task.Agent, Sandbox: "sb-aaaaaaaaaaaaaaaa",
		Rules: []task.Rule{{ID: stage.ModelRule, Host: "example.com", Ports: []uint16{uint16(port)}, Protocol: task.ProtocolHTTP, Credential: "anthropic", Private: true}},
		Leases: []task.Lease{{
			ID: "l-aaaaaaaaaaaaaaaa", Credential: "anthropic", Header: "X-Api-Key", Placeholder: placeholder,
			Hosts: []string{"example.com"}, Ports: []uint16{uint16(port)},
		}},
	}}
	roots := x509.NewCertPool()
	roots.AddCert(r.http.Certificate())
	r.options.Transport = func(g task.Grant, record func(task.EgressRecord) error) (loop.Transport, error) {
		return outbound.New(outbound.Options{
			Grant: g, Guard: guard.New(nil, nil),
			Resolver: house{}, Roots: roots, Lender: th.lender, Record: record,
		})
	}
	return th
}

func (th *through) run() error {
	job := th.job()
	job.Grant = th.grant
	return loop.New(th.options).Run(th.t.Context(), job)
}

// The loop's requests go through the same decisions as a sandbox's: the key is
// put in where the grant lends it, each request is on record, and everywhere
// else nothing leaves.
func TestThroughOutbound(t *testing.T) {
	steps := []modeltest.Step{call("shell", `{"command":"echo x > ran"}`), {Text: "Done."}}
	t.Run("allowed", func(t *testing.T) {
		th := newThrough(t, modeltest.Options{Steps: steps})
		if err := th.run(); err != nil {
			t.Fatal(err)
		}
		seen := th.server.Seen()
		if len(seen) != 2 || seen[0].Key != realKey || seen[1].Key != realKey || bytes.Contains(seen[1].Body, []byte(placeholder)) {
			t.Errorf("the server saw %d requests, key %q", len(seen), seen[0].Key)
		}
		allowed := 0
		for i, rec := range th.egress {
			if rec.Seq != int64(i+1) || rec.Task != taskID || rec.Stage != task.Agent {
				t.Errorf("record %+v", rec)
			}
			if rec.Lease == "l-aaaaaaaaaaaaaaaa" && rec.Verdict == "allowed" && rec.Path == "/v1/messages" && !rec.Done {
				allowed++
			}
		}
		if allowed != 2 {
			t.Errorf("%d requests are on record with their lease: %+v", allowed, th.egress)
		}
	})
	for name, c := range map[string]struct {
		change func(*through)
		reason task.Reason
	}{
		"no rule": {func(th *through) { th.grant.Rules = nil }, task.PolicyDenied},
		"another host": {func(th *through) {
			th.agent.ModelURL = strings.Replace(th.agent.ModelURL, "example.com", "other.example.com", 1)
		}, task.PolicyDenied},
		"private address":       {func(th *through) { th.grant.Rules[0].Private = false }, task.PolicyAddress},
		"plain http":            {func(th *through) { th.agent.ModelURL = strings.Replace(th.agent.ModelURL, "https:", "http:", 1) }, task.PolicyCredential},
		"revoked":               {func(th *through) { th.lender.revoked = true }, task.PolicyCredential},
		"lease of another host": {func(th *through) { th.grant.Leases[0].Hosts = []string{"elsewhere.example"} }, task.PolicyCredential},
	} {
		t.Run(name, func(t *testing.T) {
			th := newThrough(t, modeltest.Options{Steps: steps})
			c.change(th)
			th.fails(th.run(), c.reason, "")
			for _, seen := range th.server.Seen() {
				t.Errorf("the server saw %s with key %q", seen.Path, seen.Key)
			}
			if len(th.started) != 0 {
				t.Errorf("commands ran: %v", th.started)
			}
		})
	}
}

// A redirect leads nowhere: the key does not follow it.
func TestRedirectsAreNotFollowed(t *testing.T) {
	reached := false
	r := newRig(t, modeltest.Options{})
	r.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/elsewhere" {
			reached = true
		}
		http.Redirect(w, q, "/elsewhere", http.StatusTemporaryRedirect)
	})
	r.fails(r.run(), task.ModelFaulty, "HTTP 307")
	if reached {
		t.Error("the redirect was followed")
	}
}
