package selftest

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/authority"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/task"
)

const value = "REALVALUE0123"

type lender struct{}

func (lender) Value(context.Context, string, task.Lease) (outbound.Secret, error) {
	return task.NewSecret(value), nil
}

// gateway serves trials as one with a fault does.
func gateway(a *authority.Authority, fault string) Serve {
	return func(ctx context.Context, grant task.Grant, inside net.Conn, outside outbound.WireOptions) {
		leaf, err := a.Leaf(Host, time.Now())
		if err != nil {
			return
		}
		conn := tls.Server(inside, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*leaf}})
		defer conn.Close()
		r, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil || fault == "silent" {
			return
		}
		switch fault {
		case "":
			r.Header.Set("X-Api-Key", value)
		case "another value":
			r.Header.Set("X-Api-Key", value[1:])
		case "beside":
			r.Header.Set("X-Api-Key", value)
			r.Header.Set("X-Other", grant.Leases[0].Placeholder)
		case "twice":
			r.Header["X-Api-Key"] = []string{value, value}
		case "comes back":
			r.Header.Set("X-Api-Key", value)
		case "refused":
			fmt.Fprint(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 28\r\n\r\n{\"code\":\"policy.credential\"}")
			return
		case "cut":
			fmt.Fprint(conn, "HTTP/1.1 200 O")
			return
		}
		wire := outbound.NewWire(outside)
		defer wire.CloseIdleConnections()
		r.RequestURI, r.URL.Scheme, r.URL.Host = "", "https", Host
		res, err := wire.RoundTrip(r.WithContext(ctx))
		if err != nil {
			return
		}
		if fault == "comes back" {
			res.Header.Set("X-Echo", "your "+value)
		}
		_ = res.Write(conn)
	}
}

// A gateway with a fault does not pass, whatever the fault is.
func TestFaultsAreSeen(t *testing.T) {
	a, err := authority.New("sb-a", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	other, err := authority.New("sb-b", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	grant := task.Grant{Sandbox: "sb-a", Leases: []task.Lease{{ID: "l-a", Credential: "c", Kind: task.KindHeader, Header: "X-Api-Key", Placeholder: "placeholder123"}}}
	for fault, want := range map[string]task.Reason{
		"": "", "not put in": task.InfraSelfTest, "another value": task.InfraSelfTest, "beside": task.InfraSelfTest, "twice": task.InfraSelfTest,
		"comes back": task.InfraSelfTest, "refused": task.PolicyCredential, "cut": task.InfraSelfTest, "silent": task.InfraSelfTest,
	} {
		err := Run(t.Context(), grant, Options{Lender: lender{}, Trusted: a.PEM(), Serve: gateway(a, fault)})
		f, ok := errors.AsType[*task.Failure](err)
		if (err == nil) != (want == "") || ok && f.Reason != want || err != nil && strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", fault, err)
		}
	}
	if err := Run(t.Context(), grant, Options{Lender: lender{}, Trusted: other.PEM(), Serve: gateway(a, "")}); err == nil {
		t.Error("an authority that is not the sandbox's passes")
	}
	// Of these only the lending is tried, or nothing.
	for _, kind := range []string{task.KindAWS, task.KindPostgres, task.KindOIDC} {
		grant.Leases[0].Kind = kind
		if err := Run(t.Context(), grant, Options{Lender: lender{}, Trusted: a.PEM(), Serve: gateway(a, "silent")}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
